#!/bin/bash
# Copies the database old, which has idgen in the schema public, into the database app, which has it in the schema idgen:
#
#     bash docs/examples/change-schema.sh old app
#
# See docs/cookbook.md. For other schemas, change both names in this file.
#
# Definitions get the other schema wherever they name a function or a view of idgen, also in the body of a function and
# in a constant. Rows stay as they are. The dump is kept in this folder as long as the script runs.
#
# Nothing runs after a failure. Then remove from app what the script has created there before you start it again.
set -euo pipefail
old=${1:?is the database to copy} new=${2:?is the database to copy into}
names='(snowflake_|shard_of|idgen_)'    # how the names of idgen's functions and views begin

dump=$(mktemp "$PWD/XXXXXXXX.dump")
trap 'rm -f "$dump"' EXIT
pg_dump -Fc -f "$dump" -d "$old"

# A dump contains no member of an extension, so what it lists under such a name is not idgen's.
others=$(pg_restore -l "$dump" | sed -nE "/ public $names/p")
if [ -n "$others" ]; then
    printf '%s\n' "error: objects in public are named like idgen's, and would go into its schema:" "$others" \
        "Nothing has been copied. Rename them in $old, or move them to another schema." >&2
    exit 1
fi

for section in pre-data data post-data; do
    pg_restore --section=$section -f - "$dump" |
        if [ $section = data ]; then cat; else sed -E "s/(^|[^[:alnum:]_])public\.$names/\1idgen.\2/g"; fi |
        psql -X -q -v ON_ERROR_STOP=1 -d "$new"
done
