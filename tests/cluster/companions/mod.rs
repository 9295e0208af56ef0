//! Programs that people run beside idgen, as the pages say. `make test-companions` fetches them, and runs these tests in a
//! network of their own (`scripts/lib/own-network`), where servers have the addresses and the ports of the pages.

mod patroni;
mod pgbackrest;
mod pgdog;
mod repmgr;
