//! The arguments of a call from SQL, and its results: values, sets and rows.

use std::ffi::c_void;
use std::{mem, ptr};

use pgrx::{FromDatum, PgMemoryContexts, pg_sys};

// A bigint is passed by value. On a 32-bit platform it would be passed by reference.
const _: () = assert!(size_of::<pg_sys::Datum>() == 8);

/// The arguments of a call from SQL, by position. Their types are those declared in sql/idgen.sql.
#[derive(Clone, Copy)]
pub struct Call(pg_sys::FunctionCallInfo);

impl Call {
    /// # Safety
    /// `fcinfo` must come from PostgreSQL, and must not be kept beyond the call.
    pub unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Call {
        Call(fcinfo)
    }

    #[inline]
    fn argument(&self, place: usize) -> Option<pg_sys::Datum> {
        // SAFETY: fcinfo is valid during the call, and is followed by nargs arguments.
        unsafe {
            let fcinfo = &*self.0;
            let arguments = fcinfo.args.as_slice(fcinfo.nargs as usize);
            arguments.get(place).filter(|argument| !argument.isnull).map(|argument| argument.value)
        }
    }

    /// An `integer`; `None` for null.
    #[inline]
    pub fn int4(&self, place: usize) -> Option<i32> {
        self.argument(place).map(|value| value.value() as i32)
    }

    /// A `bigint` or `timestamptz`; `None` for null.
    #[inline]
    pub fn int8(&self, place: usize) -> Option<i64> {
        self.argument(place).map(|value| value.value() as i64)
    }

    /// The pointer in an argument of type `internal`; null for null.
    pub fn internal(&self, place: usize) -> *mut c_void {
        self.argument(place).map_or(ptr::null_mut(), |value| value.cast_mut_ptr())
    }

    /// The bytes of a `text`, which need not be valid UTF-8 in a database with another encoding; `None` for null.
    /// Raises PostgreSQL's errors.
    pub fn text(&self, place: usize) -> Option<&[u8]> {
        // SAFETY: sql/idgen.sql declares the argument as text. Functions with `#[pg_extern]` rely on the same.
        unsafe { FromDatum::from_datum(self.argument(place)?, false) }
    }
}

unsafe extern "C-unwind" {
    // As in pg_sys, but without the guard around it: its only error, out of memory, goes straight to PostgreSQL,
    // past frames that have nothing to drop.
    fn palloc(size: usize) -> *mut c_void;
}

/// A column of a [`Call::row`], passed by value.
#[derive(Clone, Copy)]
pub enum Column {
    /// An `integer`.
    Int4(i32),
    /// A `bigint` or `timestamptz`.
    Int8(i64),
    /// Null.
    Null,
}

impl Call {
    /// The set that this call site has begun to return; null if it has not.
    #[inline]
    fn set<I>(&self) -> *mut I {
        // SAFETY: fn_extra of a function that returns a set is what begin_or_end_set() stored there, for as long as
        // the set lasts.
        unsafe {
            let set = (*(*self.0).flinfo).fn_extra.cast::<pg_sys::FuncCallContext>().as_ref();
            set.map_or(ptr::null_mut(), |set| set.user_fctx.cast())
        }
    }

    #[inline]
    fn set_is_done(&self, done: pg_sys::ExprDoneCond::Type) {
        // SAFETY: init_MultiFuncCall() has checked that resultinfo exists and is a ReturnSetInfo.
        unsafe { (*(*self.0).resultinfo.cast::<pg_sys::ReturnSetInfo>()).isDone = done }
    }

    /// The next value of a set that this call site has begun to return.
    #[inline]
    pub fn next_of_set<I: Iterator<Item = i64>>(&self) -> Option<pg_sys::Datum> {
        // SAFETY: a set has the type with which its function began it, and this is the only reference to it.
        let value = unsafe { self.set::<I>().as_mut() }?.next()?;
        self.set_is_done(pg_sys::ExprDoneCond::ExprMultipleResult);
        Some(value.into())
    }

    /// Begins to return a set, or ends it. Raises PostgreSQL's errors.
    pub fn begin_or_end_set<I: Iterator<Item = i64>, E>(
        &self,
        begin: impl FnOnce() -> Result<I, E>,
    ) -> Result<pg_sys::Datum, E> {
        // SAFETY: PostgreSQL passes a valid fcinfo. init_MultiFuncCall checks that a set may be returned, and
        // arranges for fn_extra to be cleared even if the caller does not read to the end.
        unsafe {
            if self.set::<I>().is_null() {
                let values = begin()?;
                let set = pg_sys::init_MultiFuncCall(self.0);
                let mut context = PgMemoryContexts::For((*set).multi_call_memory_ctx);
                (*set).user_fctx = context.leak_and_drop_on_delete(values).cast();
                if let Some(value) = self.next_of_set::<I>() {
                    return Ok(value);
                }
            }
            let set = (*(*self.0).flinfo).fn_extra.cast();
            pg_sys::end_MultiFuncCall(self.0, set);
            self.set_is_done(pg_sys::ExprDoneCond::ExprEndResult);
            (*self.0).isnull = true;
            Ok(pg_sys::Datum::null())
        }
    }
}

/// Size of the header of a tuple without nulls, in words of 8 bytes.
const TUPLE_HEADER: usize = (mem::offset_of!(pg_sys::HeapTupleHeaderData, t_bits)).div_ceil(8);

/// The state that a call site that returns rows keeps in fn_extra.
struct RowType {
    desc: pg_sys::TupleDesc,
    /// The header of rows without nulls, as formed by PostgreSQL for the first such row.
    header: Option<[u64; TUPLE_HEADER]>,
}

/// The offset of each column, and of the end of the last one, from the beginning of the tuple; `None` if a column
/// is null.
#[inline]
fn places<const COLUMNS: usize>(columns: &[Column; COLUMNS]) -> Option<([usize; COLUMNS], usize)> {
    let mut end = TUPLE_HEADER * 8;
    let mut places = [0; COLUMNS];
    for (place, column) in places.iter_mut().zip(columns) {
        let size = match column {
            Column::Int4(_) => 4,
            Column::Int8(_) => 8,
            Column::Null => return None,
        };
        *place = end.next_multiple_of(size);
        end = *place + size;
    }
    Some((places, end))
}

impl Call {
    /// A row of the function's OUT parameters with these columns. `None` at the first call of a call site, and if a
    /// column is null: use [`Call::formed_row`] then.
    #[inline]
    pub fn row<const COLUMNS: usize>(&self, columns: [Column; COLUMNS]) -> Option<pg_sys::Datum> {
        // SAFETY: fn_extra belongs to this function. Only formed_row() sets it, with the header of a tuple whose
        // layout it has checked. Memory from palloc is aligned for every type.
        unsafe {
            let row_type = (*(*self.0).flinfo).fn_extra.cast::<RowType>().as_ref()?;
            let (header, (places, length)) = (row_type.header?, places(&columns)?);
            let tuple = palloc(length).cast::<u8>();
            tuple.cast::<[u64; TUPLE_HEADER]>().write(header);
            for (column, place) in columns.into_iter().zip(places) {
                match column {
                    Column::Int4(value) => tuple.add(place).cast::<i32>().write(value),
                    Column::Int8(value) => tuple.add(place).cast::<i64>().write(value),
                    Column::Null => {}
                }
            }
            Some(tuple.into())
        }
    }

    /// Lets PostgreSQL form the row, and keeps the header of the first row without nulls for later rows. Raises
    /// PostgreSQL's errors.
    pub fn formed_row<const COLUMNS: usize>(&self, columns: [Column; COLUMNS]) -> pg_sys::Datum {
        // SAFETY: PostgreSQL passes a valid fcinfo whose flinfo lives in fn_mcxt, where fn_extra must point to as
        // well. The row has as many columns as its type.
        unsafe {
            let flinfo = (*self.0).flinfo;
            if (*flinfo).fn_extra.is_null() {
                let mut context = PgMemoryContexts::For((*flinfo).fn_mcxt);
                let desc = context.switch_to(|_| self.row_desc(COLUMNS));
                (*flinfo).fn_extra = context.leak_and_drop_on_delete(RowType { desc, header: None }).cast();
            }
            let row_type = &mut *(*flinfo).fn_extra.cast::<RowType>();
            let mut nulls = columns.map(|column| matches!(column, Column::Null));
            let mut values = columns.map(|column| match column {
                Column::Int4(value) => value.into(),
                Column::Int8(value) => value.into(),
                Column::Null => pg_sys::Datum::null(),
            });
            let tuple = *pg_sys::heap_form_tuple(row_type.desc, values.as_mut_ptr(), nulls.as_mut_ptr());
            if row_type.header.is_none()
                && let Some((_, length)) = places(&columns)
            {
                assert_eq!(usize::from((*tuple.t_data).t_hoff), TUPLE_HEADER * 8);
                assert_eq!(tuple.t_len as usize, length);
                row_type.header = Some(*tuple.t_data.cast());
            }
            pg_sys::HeapTupleHeaderGetDatum(tuple.t_data)
        }
    }

    /// The type of the row that the function returns, created in the current memory context and blessed for the
    /// type record. Panics if it does not have this number of columns.
    fn row_desc(&self, columns: usize) -> pg_sys::TupleDesc {
        // SAFETY: PostgreSQL passes a valid fcinfo, and the function returns a row.
        unsafe {
            let mut desc = ptr::null_mut();
            let class = pg_sys::get_call_result_type(self.0, ptr::null_mut(), &mut desc);
            assert_eq!(class, pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE);
            assert_eq!((*desc).natts as usize, columns);
            pg_sys::BlessTupleDesc(desc)
        }
    }
}

/// Calls one of PostgreSQL's own set-returning functions, whatever the privileges of the caller, and returns each
/// row as read by `read`. The function is called as the executor does it, for all rows at once. Raises PostgreSQL's
/// errors.
///
/// # Safety
/// `function` is the function with this OID, takes no arguments and returns its rows in a tuplestore.
pub unsafe fn rows<T>(
    function: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum,
    oid: pg_sys::Oid,
    read: impl Fn(*mut pg_sys::TupleTableSlot) -> T,
) -> Vec<T> {
    // SAFETY: the caller's promise. The rows are in a tuplestore made by the function, in the memory of `context`,
    // and the three parts of the call outlive it.
    unsafe {
        let context = pg_sys::CreateStandaloneExprContext();
        let mut info = pg_sys::FmgrInfo::default();
        pg_sys::fmgr_info(oid, &mut info);
        let mut set = pg_sys::ReturnSetInfo {
            type_: pg_sys::NodeTag::T_ReturnSetInfo,
            econtext: context,
            allowedModes: pg_sys::SetFunctionReturnMode::SFRM_Materialize as i32,
            ..Default::default()
        };
        let mut call = pg_sys::FunctionCallInfoBaseData {
            flinfo: &mut info,
            resultinfo: (&raw mut set).cast(),
            ..Default::default()
        };
        function(&mut call);
        let slot = pg_sys::MakeSingleTupleTableSlot(set.setDesc, &raw const pg_sys::TTSOpsMinimalTuple);
        let mut all = Vec::new();
        while pg_sys::tuplestore_gettupleslot(set.setResult, true, false, slot) {
            pg_sys::slot_getallattrs(slot);
            all.push(read(slot));
        }
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::tuplestore_end(set.setResult);
        pg_sys::FreeExprContext(context, true);
        all
    }
}

/// Defines the entry point of a function that is called for every row. `#[pg_extern]` would cost as much as minting
/// itself, because it switches memory contexts and passes the result through several layers. Here `$fast` returns
/// the result without ever panicking, or returns `None`, and then `$slow` runs under pgrx's guard.
macro_rules! hot_entry {
    ($symbol:ident, $fast:expr, $slow:expr) => {
        #[allow(unsafe_code)]
        const _: () = {
            #[unsafe(export_name = concat!("pg_finfo_", stringify!($symbol)))]
            extern "C-unwind" fn finfo() -> &'static pgrx::pg_sys::Pg_finfo_record {
                &pgrx::pg_sys::Pg_finfo_record { api_version: 1 }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol(
                fcinfo: pgrx::pg_sys::FunctionCallInfo,
            ) -> pgrx::pg_sys::Datum {
                let (fast, slow) = ($fast, $slow);
                // SAFETY: PostgreSQL calls this; anything below that panics does so inside the guard.
                unsafe {
                    let call = $crate::pg::call::Call::new(fcinfo);
                    match fast(call) {
                        Some(value) => value.into(),
                        None => pgrx::pg_sys::submodules::panic::pgrx_extern_c_guard(|| match slow(call) {
                            Ok(value) => value.into(),
                            Err(error) => $crate::error::Error::raise(error),
                        }),
                    }
                }
            }
        };
    };
}
pub(crate) use hot_entry;
