//! The SQL entries, by topic. `sql/idgen.sql` declares them; a symbol once released is never dropped.

mod decode;
mod forms;
mod generate;
mod layouts;
mod status;
mod times;
