<?php
require __DIR__ . '/../php.php';

$db = new PDO(sprintf('pgsql:host=%s;port=%s;dbname=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE')),
    getenv('PGUSER'), getenv('PGPASSWORD'));
same((int) $argv[1], $db->query('SELECT shard_of(snowflake_next_id())')->fetchColumn());
