//! The expression that replaces a call that mints in the defaults of COPY, so that COPY keeps its batches.

use std::ffi::{CStr, c_char, c_void};

use pgrx::pg_sys;

use super::call::Call;
use super::compat::may_execute;

/// Answers a support request of the planner with the expression that replaces the call, or with null.
///
/// COPY inserts row by row if a default is volatile, because such a function could read the table. It makes an
/// exception for nextval(), and looks at the expression to which the planner has simplified the default. So there
/// `snowflake_next_id(5)` becomes `COALESCE(idgen_next_id(5, NULL), NEXT VALUE)`. The first argument calls the same
/// function of the library, declared STABLE, and is never null. So the second one, the node that PostgreSQL uses for
/// identity columns, here without a sequence, is never evaluated. It keeps the expression volatile for every other
/// check: without it, PostgreSQL would inline an SQL function that uses its argument twice, with two ids.
pub fn simplified(call: Call) -> pg_sys::Datum {
    // SAFETY: PostgreSQL's planner calls this with a request, of which there are several kinds.
    unsafe {
        let request = call.internal(0);
        if (*request.cast::<pg_sys::Node>()).type_ != pg_sys::NodeTag::T_SupportRequestSimplify {
            return pg_sys::Datum::null();
        }
        let request = &*request.cast::<pg_sys::SupportRequestSimplify>();
        if !request.root.is_null() || !in_copy() {
            return pg_sys::Datum::null();
        }
        let minting = &*request.fcall;
        twin(minting.funcid).map_or(pg_sys::Datum::null(), |twin| coalesce(twin, minting.args).into())
    }
}

/// Whether COPY is planning its defaults, which it does in a memory context of this name. Whatever else plans an
/// expression outside of a query gets the call itself. It needs nothing else, and may evaluate parts of the expression
/// or turn it into SQL for another server, as Citus does.
fn in_copy() -> bool {
    // SAFETY: there is always a current memory context, and each has a name.
    unsafe { CStr::from_ptr((*pg_sys::CurrentMemoryContext).name) == c"COPY" }
}

/// The STABLE twin of a minting function. `None` if the user may not call both, or if one of them has been altered or
/// dropped: the call then stays as it is.
fn twin(function: pg_sys::Oid) -> Option<pg_sys::Oid> {
    let (schema, name, mut types) = declared(function, pg_sys::PROVOLATILE_VOLATILE)?;
    types.push(pg_sys::INTERNALOID);
    let twin = in_schema(schema, &name, &types);
    declared(twin, pg_sys::PROVOLATILE_STABLE)?;
    (may_execute(function) && may_execute(twin)).then_some(twin)
}

/// The schema, the name and the types of the arguments of a function, if it is there and as idgen declares it.
fn declared(function: pg_sys::Oid, volatility: u8) -> Option<(pg_sys::Oid, String, Vec<pg_sys::Oid>)> {
    // SAFETY: the tuple is null or valid until its release, and the OIDs are followed by as many as they say.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::PROCOID as _, function.into());
        if tuple.is_null() {
            return None;
        }
        let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_proc>();
        let as_declared = row.prolang == pg_sys::ClanguageId.into()
            && !row.prosecdef
            && !row.proisstrict
            && row.provolatile as u8 == volatility
            && pg_sys::heap_attisnull(tuple, pg_sys::Anum_pg_proc_proconfig as i32, std::ptr::null_mut());
        let found = as_declared.then(|| {
            let name = CStr::from_ptr(row.proname.data.as_ptr()).to_string_lossy().into_owned();
            let types = row.proargtypes.values.as_slice(row.proargtypes.dim1 as usize).to_vec();
            (row.pronamespace, name, types)
        });
        pg_sys::ReleaseSysCache(tuple);
        found
    }
}

/// The twin of the function with this name, by its schema and the types of its arguments. Only a superuser could
/// create another one, because of the argument of type `internal`. Invalid if there is none.
fn in_schema(schema: pg_sys::Oid, name: &str, types: &[pg_sys::Oid]) -> pg_sys::Oid {
    let name = name.replacen("snowflake_", "idgen_", 1);
    let mut data = pg_sys::NameData::default();
    for (to, from) in data.data.iter_mut().zip(name.bytes()) {
        // Signed or not, depending on the processor.
        *to = c_char::from_ne_bytes([from]);
    }
    // SAFETY: the keys of this cache have these types.
    unsafe {
        let types = pg_sys::buildoidvector(types.as_ptr(), types.len() as i32);
        pg_sys::GetSysCacheOid(
            pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP as _,
            pg_sys::Anum_pg_proc_oid as i16,
            (&raw const data).cast::<c_void>().into(),
            types.into(),
            schema.into(),
            pg_sys::Datum::null(),
        )
    }
}

/// # Safety
/// The arguments are those of a minting function, whose twin is `twin`.
unsafe fn coalesce(twin: pg_sys::Oid, arguments: *mut pg_sys::List) -> *mut pg_sys::CoalesceExpr {
    // SAFETY: nodes in the memory of the planner, as PostgreSQL makes them itself.
    unsafe {
        let planned = pg_sys::makeNullConst(pg_sys::INTERNALOID, -1, pg_sys::InvalidOid);
        let arguments = pg_sys::lappend(pg_sys::list_copy(arguments), planned.cast());
        let call = pg_sys::makeFuncExpr(
            twin,
            pg_sys::INT8OID,
            arguments,
            pg_sys::InvalidOid,
            pg_sys::InvalidOid,
            pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
        );
        let next = node(pg_sys::NextValueExpr {
            xpr: pg_sys::Expr { type_: pg_sys::NodeTag::T_NextValueExpr },
            seqid: pg_sys::InvalidOid,
            typeId: pg_sys::INT8OID,
        });
        node(pg_sys::CoalesceExpr {
            xpr: pg_sys::Expr { type_: pg_sys::NodeTag::T_CoalesceExpr },
            coalescetype: pg_sys::INT8OID,
            coalescecollid: pg_sys::InvalidOid,
            args: pg_sys::lappend(pg_sys::lappend(std::ptr::null_mut(), call.cast()), next.cast()),
            location: -1,
        })
    }
}

/// A copy of a node in the current memory context.
fn node<T: Copy>(value: T) -> *mut T {
    // SAFETY: the memory is as large as the node, and aligned for every type.
    unsafe {
        let copy = pg_sys::palloc(size_of::<T>()).cast::<T>();
        copy.write(value);
        copy
    }
}
