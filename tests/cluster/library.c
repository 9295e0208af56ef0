/*
 * For tests: the behavior of other libraries.
 *
 * late_commit(psql, sql) has another session do something, which it commits, or rolls back, in its transaction
 * callback, when the transaction here has ended: libraries that distribute transactions over servers do this.
 *
 * in_worker(library, sql) does something in a background worker, which shows nothing in pg_stat_activity.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "postmaster/bgworker.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

static FILE *other;

static void
transaction_event(XactEvent event, void *arg)
{
	if (other == NULL || (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT))
		return;
	fputs(event == XACT_EVENT_COMMIT ? "COMMIT;\n" : "ROLLBACK;\n", other);
	pclose(other);
	other = NULL;
}

PG_FUNCTION_INFO_V1(late_commit);

Datum
late_commit(PG_FUNCTION_ARGS)
{
	other = popen(text_to_cstring(PG_GETARG_TEXT_PP(0)), "w");
	if (other == NULL)
		elog(ERROR, "no psql");
	fprintf(other, "BEGIN;\n%s;\n", text_to_cstring(PG_GETARG_TEXT_PP(1)));
	fflush(other);
	PG_RETURN_VOID();
}

PGDLLEXPORT void work(Datum arg);

void
work(Datum arg)
{
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection("postgres", NULL, 0);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	SPI_execute(MyBgworkerEntry->bgw_extra, false, 0);
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
}

PG_FUNCTION_INFO_V1(in_worker);

Datum
in_worker(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(0), worker.bgw_library_name, sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "work", BGW_MAXLEN);
	strlcpy(worker.bgw_name, "a worker of a test", BGW_MAXLEN);
	strlcpy(worker.bgw_type, "a worker of a test", BGW_MAXLEN);
	text_to_cstring_buffer(PG_GETARG_TEXT_PP(1), worker.bgw_extra, BGW_EXTRALEN);
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		elog(ERROR, "no worker");
	PG_RETURN_VOID();
}

void
_PG_init(void)
{
	RegisterXactCallback(transaction_event, NULL);
}
