/*
 * late_commit(psql, sql) runs SQL in another session, which commits or rolls back in a transaction callback when the
 * transaction here has ended. Libraries that distribute transactions over servers do this.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "utils/builtins.h"

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

void
_PG_init(void)
{
	RegisterXactCallback(transaction_event, NULL);
}
