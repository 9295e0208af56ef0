//! The arguments of a call from SQL, and its results: values, sets and rows.

use std::ffi::c_void;
use std::{mem, ptr};

use pgrx::{FromDatum, PgMemoryContexts, pg_sys};

// A bigint is passed by value. On a processor of 32 bits it would be behind a pointer.
const _: () = assert!(size_of::<pg_sys::Datum>() == 8);

/// The arguments of a call from SQL, by their place. Their types are those that sql/idgen.sql declares.
#[derive(Clone, Copy)]
pub struct Call(pg_sys::FunctionCallInfo);

impl Call {
    /// # Safety
    /// What PostgreSQL has handed to a function, which gives it to nobody that outlives the call.
    pub unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Call {
        Call(fcinfo)
    }

    #[inline]
    fn argument(&self, place: usize) -> Option<pg_sys::Datum> {
        // SAFETY: fcinfo is valid as long as the call, and has nargs arguments behind its end.
        unsafe {
            let fcinfo = &*self.0;
            let arguments = fcinfo.args.as_slice(fcinfo.nargs as usize);
            arguments.get(place).filter(|argument| !argument.isnull).map(|argument| argument.value)
        }
    }

    /// An `integer`; none for null.
    #[inline]
    pub fn int4(&self, place: usize) -> Option<i32> {
        self.argument(place).map(|value| value.value() as i32)
    }

    /// A `bigint` or `timestamptz`; none for null.
    #[inline]
    pub fn int8(&self, place: usize) -> Option<i64> {
        self.argument(place).map(|value| value.value() as i64)
    }

    /// A `text` as its bytes, for those of a database with another encoding are no `str`; none for null. Raises
    /// PostgreSQL's errors.
    pub fn text(&self, place: usize) -> Option<&[u8]> {
        // SAFETY: what the functions of `#[pg_extern]` rely on, too: sql/idgen.sql declares the argument as text.
        unsafe { FromDatum::from_datum(self.argument(place)?, false) }
    }
}

unsafe extern "C-unwind" {
    // As pg_sys has it, without the guard around it: an error, which is that memory is out, goes straight to
    // PostgreSQL, past frames that have nothing to drop.
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
    /// The set that this call site has begun to return; null where it has not.
    #[inline]
    fn set<I>(&self) -> *mut I {
        // SAFETY: fn_extra of a function that returns a set is what begin_or_end_set() has made of it, for
        // as long as the set lasts.
        unsafe {
            let set = (*(*self.0).flinfo).fn_extra.cast::<pg_sys::FuncCallContext>().as_ref();
            set.map_or(ptr::null_mut(), |set| set.user_fctx.cast())
        }
    }

    #[inline]
    fn set_is_done(&self, done: pg_sys::ExprDoneCond::Type) {
        // SAFETY: init_MultiFuncCall() has found that resultinfo is there, and is this.
        unsafe { (*(*self.0).resultinfo.cast::<pg_sys::ReturnSetInfo>()).isDone = done }
    }

    /// The next value of a set that this call site has begun to return.
    #[inline]
    pub fn next_of_set<I: Iterator<Item = i64>>(&self) -> Option<pg_sys::Datum> {
        // SAFETY: a set is of the type its function began it with, and this is the only reference to it.
        let value = unsafe { self.set::<I>().as_mut() }?.next()?;
        self.set_is_done(pg_sys::ExprDoneCond::ExprMultipleResult);
        Some(value.into())
    }

    /// Begins to return a set, or ends it. Raises PostgreSQL's errors.
    pub fn begin_or_end_set<I: Iterator<Item = i64>, E>(
        &self,
        begin: impl FnOnce() -> Result<I, E>,
    ) -> Result<pg_sys::Datum, E> {
        // SAFETY: PostgreSQL passes a valid fcinfo. init_MultiFuncCall checks that a set may be returned,
        // and sees to it that fn_extra is cleared also where the caller does not read to the end.
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

/// What a tuple without nulls has before its columns, in words of 8 bytes.
const TUPLE_HEADER: usize = (mem::offset_of!(pg_sys::HeapTupleHeaderData, t_bits)).div_ceil(8);

/// What a call site that returns rows keeps in fn_extra.
struct RowType {
    desc: pg_sys::TupleDesc,
    /// The header that PostgreSQL gives to rows without nulls, once there has been one.
    header: Option<[u64; TUPLE_HEADER]>,
}

/// Where each column begins and where the last one ends, counted from the tuple's beginning; none where a column
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
    /// A row of the function's OUT parameters, which are those columns. None at the first call of a call
    /// site, and where a column is null: [`Call::formed_row`] does that.
    #[inline]
    pub fn row<const COLUMNS: usize>(&self, columns: [Column; COLUMNS]) -> Option<pg_sys::Datum> {
        // SAFETY: fn_extra is this function's own. formed_row() alone sets it, with the header of a tuple
        // that it has found to be laid out like this. What palloc returns is aligned for every type.
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

    /// Has PostgreSQL form the row, and keeps the header of the first one without nulls for the next. Raises
    /// PostgreSQL's errors.
    pub fn formed_row<const COLUMNS: usize>(&self, columns: [Column; COLUMNS]) -> pg_sys::Datum {
        // SAFETY: PostgreSQL passes a valid fcinfo whose flinfo lives in fn_mcxt, as must what fn_extra
        // points to. The row has as many columns as the type that it is formed by.
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

    /// The type of the row that the function returns, made in the current memory context and fit for the type
    /// record. Panics where it has not that number of columns.
    fn row_desc(&self, columns: usize) -> pg_sys::TupleDesc {
        // SAFETY: PostgreSQL passes a valid fcinfo, and the answer is of a row of this function's own.
        unsafe {
            let mut desc = ptr::null_mut();
            let class = pg_sys::get_call_result_type(self.0, ptr::null_mut(), &mut desc);
            assert_eq!(class, pg_sys::TypeFuncClass::TYPEFUNC_COMPOSITE);
            assert_eq!((*desc).natts as usize, columns);
            pg_sys::BlessTupleDesc(desc)
        }
    }
}

/// What one of PostgreSQL's own functions returns as a set, whoever calls and may not, each row as `read` sees it. It
/// is called as the executor does it, for all of its rows at once. Raises PostgreSQL's errors.
///
/// # Safety
/// `function` is the function with this OID, takes no arguments and gives its rows in a tuplestore.
pub unsafe fn rows<T>(
    function: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum,
    oid: pg_sys::Oid,
    read: impl Fn(*mut pg_sys::TupleTableSlot) -> T,
) -> Vec<T> {
    // SAFETY: the caller's promise. The rows are in a tuplestore of the function's own making, in the memory of
    // `context`, and the call's three parts outlive it.
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

/// Defines the entry of a function that is called for every row. `#[pg_extern]` costs such a call as
/// much as minting itself: it switches memory contexts and carries the result through several hands. Here
/// `$fast` answers without ever panicking, or gives none and `$slow` does it under pgrx's guard.
macro_rules! hot_entry {
    ($symbol:ident, $fast:expr, $slow:expr) => {
        #[allow(unsafe_code)]
        const _: () = {
            #[unsafe(export_name = concat!("pg_finfo_", stringify!($symbol)))]
            extern "C" fn finfo() -> &'static pgrx::pg_sys::Pg_finfo_record {
                &pgrx::pg_sys::Pg_finfo_record { api_version: 1 }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $symbol(
                fcinfo: pgrx::pg_sys::FunctionCallInfo,
            ) -> pgrx::pg_sys::Datum {
                let (fast, slow) = ($fast, $slow);
                // SAFETY: PostgreSQL calls this; what panics below does so inside the guard.
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
