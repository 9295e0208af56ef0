//! idgen beside programs that people run with it, set up as the pages say. `make test-companions` fetches the programs,
//! and runs these tests in a network namespace of their own (`scripts/lib/own-network`), in which servers can have the
//! addresses and ports of the pages.

mod patroni;
mod pgbackrest;
mod pgdog;
mod repmgr;
