-- A million ids of one shard in one session, not stored. The time includes counting to a million.

SELECT clock_timestamp() AS start \gset
SELECT count(snowflake_next_id(5)) AS minted FROM generate_series(1, 1000000) \gset
SELECT :minted AS ids,
       round(extract(epoch FROM clock_timestamp() - :'start') * 1000) AS ms,
       round(:minted / extract(epoch FROM clock_timestamp() - :'start')) AS ids_per_second;
