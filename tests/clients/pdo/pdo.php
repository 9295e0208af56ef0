<?php
// Checks what docs/orm/php.md says about PDO.
require __DIR__ . '/../php.php';

$dsn = sprintf('pgsql:host=%s;port=%s;dbname=%s', getenv('PGHOST'), getenv('PGPORT'), getenv('PGDATABASE'));
$connect = fn (string $dsn, array $options = []) => new PDO($dsn, getenv('PGUSER'), getenv('PGPASSWORD'), $options);
$shard = fn (PDO $db) => $db->query('SELECT shard_of(snowflake_next_id())')->fetchColumn();
$db = $connect($dsn);
$db->exec('
    CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text UNIQUE, city text);
    CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), user_id bigint NOT NULL REFERENCES users,
                         caption text NOT NULL)');

// A row. lastInsertId() reads a sequence.
$since = new DateTimeImmutable('-1 second', new DateTimeZone('Asia/Tokyo'));
$insert = $db->prepare('INSERT INTO users (name) VALUES (?) RETURNING id');
$insert->execute(['Ada']);
$ada = $insert->fetchColumn();
same(true, is_int($ada) && are_ids([$ada]));
fails('55000', fn () => $db->lastInsertId());
$db->exec('CREATE TABLE labels (id serial); INSERT INTO labels DEFAULT VALUES');
$insert->execute(['Grace']);
same('1', $db->lastInsertId());

// 3000 rows, an upsert, a page, a range of time.
$captions = array_map(fn ($n) => "photo $n", range(1, 3000));
$insert = $db->prepare('
    INSERT INTO photos (user_id, caption) SELECT ?, json_array_elements_text(?) RETURNING id, caption');
$insert->execute([$ada, json_encode($captions)]);
$rows = $insert->fetchAll(PDO::FETCH_KEY_PAIR);
$ids = array_keys($rows);
same($captions, array_values($rows));
same(true, are_ids($ids) && $ada < $ids[0]);
same($rows, $db->query('SELECT id, caption FROM photos ORDER BY id')->fetchAll(PDO::FETCH_KEY_PAIR));

$upsert = $db->prepare('
    INSERT INTO users (name, city) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET city = excluded.city RETURNING id');
$upsert->execute(['Ada', 'London']);
same($ada, $upsert->fetchColumn());

$page = $db->prepare('SELECT id FROM photos WHERE id > ? ORDER BY id LIMIT 100');
$page->execute([$ids[499]]);
same(array_slice($ids, 500, 100), $page->fetchAll(PDO::FETCH_COLUMN));

$range = $db->prepare('SELECT id FROM photos WHERE snowflake_between(id, ?, ?) ORDER BY id');
$range->execute([$since->format(DATE_ATOM), $since->modify('+4 seconds')->format(DATE_ATOM)]);
same($ids, $range->fetchAll(PDO::FETCH_COLUMN));
$range->execute([$since->format('Y-m-d H:i:s'), $since->modify('+4 seconds')->format('Y-m-d H:i:s')]);
same([], $range->fetchAll(PDO::FETCH_COLUMN));    // Tokyo's local time, taken for UTC

// JSON.
$photo = $db->query('SELECT id, 7 AS size FROM photos ORDER BY id')->fetch(PDO::FETCH_ASSOC);
same("{\"id\":$ids[0],\"size\":7}", json_encode($photo));
same(true, count(array_unique(array_map('rounded', $ids))) < 3000);
$photo['id'] = (string) $photo['id'];
same("{\"id\":\"$ids[0]\",\"size\":7}", json_encode($photo));

// The shard.
$next = $db->prepare('SELECT shard_of(snowflake_next_id(?))');
$next->execute([7]);
same(7, $next->fetchColumn());
same(7, $shard($connect("$dsn;options='-c idgen.shard=7'")));
$kept = $connect($dsn, [PDO::ATTR_PERSISTENT => true]);
$kept->exec('SET idgen.shard = 7');
unset($kept);
$kept = $connect($dsn, [PDO::ATTR_PERSISTENT => true]);
same(7, $shard($kept));
$kept->exec('RESET idgen.shard');
$kept->beginTransaction();
$kept->exec('SET LOCAL idgen.shard = 7');
same(7, $shard($kept));
$kept->commit();
same(5, $shard($kept));
echo "used: a row, 3000 rows, an upsert, a page, a range of time, JSON, shards\n";
