#!/usr/bin/env bash
# Measures how many ids of the portable edition several clients get per second, compared with those of Instagram's
# function. Each `SELECT` is a transaction of its own. bench.sql, which creates both, runs this on its server. It prints
# a Markdown table of medians of five interleaved rounds.
set -euo pipefail

clients=(1 2 8)
names=('`snowflake_next_id(5)`: one shard' '`snowflake_next_id(N)`: a shard for each client'
    '`snowflake_next_ids(5, 100)`: one shard, batches of 100' "Instagram's PL/pgSQL function")
statements=('SELECT snowflake_next_id(5)' 'SELECT snowflake_next_id(:client_id)'
    'SELECT count(*) FROM snowflake_next_ids(5, 100)' 'SELECT insta5.next_id()')
ids=(1 1 100 1)    # of a statement

taken=$(mktemp -d)
trap 'rm -rf "$taken"' EXIT
for round in 1 2 3 4 5; do
    for number in "${!clients[@]}"; do
        for subject in "${!statements[@]}"; do
            pgbench -n -M prepared -c "${clients[number]}" -j 2 -T "${SECONDS_EACH:-2}" \
                -f <(echo "${statements[subject]}") 2>/dev/null |
                sed -n 's/^tps = \([0-9]*\).*/\1/p' >>"$taken/$subject-$number"
        done
    done
done
echo "| ids per second, with so many clients | ${clients[*]/%/ |}"
echo "|---|---|---|---|"
for subject in "${!statements[@]}"; do
    printf '| %s |' "${names[subject]}"
    for number in "${!clients[@]}"; do
        median=$(sort -n "$taken/$subject-$number" | sed -n 3p)
        printf ' %s |' "$((median * ids[subject]))"
    done
    echo
done
