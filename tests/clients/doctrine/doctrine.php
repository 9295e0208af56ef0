<?php
// Checks what docs/orm/php.md says about Doctrine.
require __DIR__ . '/../php.php';
require 'Doctrine/ORM/autoload.php';
require __DIR__ . '/entities.php';

use Doctrine\DBAL\DriverManager;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\ORMSetup;
use Doctrine\ORM\Tools\SchemaTool;

$config = ORMSetup::createAttributeMetadataConfiguration([__DIR__], true);
$connection = DriverManager::getConnection([
    'driver' => 'pdo_pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'dbname' => getenv('PGDATABASE'),
    'user' => getenv('PGUSER'), 'password' => getenv('PGPASSWORD'),
], $config);
$em = new EntityManager($connection, $config);

// The statements that create the tables of these classes.
$changes = function (string ...$classes) use ($em) {
    $classes = array_map(fn ($class) => $em->getClassMetadata($class), $classes);
    return (new SchemaTool($em))->getUpdateSchemaSql($classes, true);
};
foreach ($changes(User::class, Photo::class) as $statement) {
    $connection->executeStatement($statement);
}
same([], $changes(User::class, Photo::class));
same(['ALTER TABLE photos ALTER user_id SET DEFAULT snowflake_next_id()'],
    $changes(User::class, PhotoWithDefaults::class));
same(['ALTER TABLE users ALTER id DROP DEFAULT'], $changes(UserWithoutDefault::class));

// A row, rows, an upsert, a page, a range of time.
$since = new DateTimeImmutable('-1 second', new DateTimeZone('Asia/Tokyo'));
$ada = new User('Ada');
$em->persist($ada);
same(true, are_ids([(int) $ada->id]));    // before the insert
$photos = array_map(fn ($n) => new Photo($ada, "photo $n"), range(1, 300));
array_map([$em, 'persist'], $photos);
$em->flush();
$ids = array_column($photos, 'id');
same(true, are_ids(array_map('intval', $ids)));
$em->clear();
$found = $em->getRepository(Photo::class)->findBy([], ['id' => 'ASC']);
same(array_column($photos, 'caption', 'id'), array_column($found, 'caption', 'id'));
same($ada->id, $found[7]->user->id);

same($ada->id, (string) $connection->fetchOne('
    INSERT INTO users (name) VALUES (?) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id', ['Ada']));

$page = $em->createQuery('SELECT p.id FROM Photo p WHERE p.id > :last ORDER BY p.id');
$page->setMaxResults(50)->setParameter('last', $ids[99]);
same(array_slice($ids, 100, 50), array_column($page->getResult(), 'id'));

$until = $since->modify('+1 minute');
$bounds = $connection->fetchAssociative('SELECT snowflake_min_id(?) AS first, snowflake_max_id(?) AS last',
    [$since, $until], ['datetimetz_immutable', 'datetimetz_immutable']);
$range = $em->createQuery('SELECT p.id FROM Photo p WHERE p.id BETWEEN :first AND :last ORDER BY p.id');
same($ids, array_column($range->setParameters($bounds)->getResult(), 'id'));
$bounds = $connection->fetchAssociative('SELECT snowflake_min_id(?) AS first, snowflake_max_id(?) AS last',
    [$since, $until], ['datetime_immutable', 'datetime_immutable']);
same([], $range->setParameters($bounds)->getResult());    // Tokyo's local time, taken for UTC

// JSON.
$em->clear();
same("{\"id\":\"{$ada->id}\",\"name\":\"Ada\"}", json_encode($em->find(User::class, $ada->id)));
same("[{\"id\":\"{$ada->id}\"}]", json_encode($em->createQuery('SELECT u.id FROM User u')->getResult()));
same("[{$ada->id}]", json_encode($em->createQuery('SELECT u.id FROM User u')->getSingleColumnResult()));
same("[{$ada->id}]", json_encode($connection->fetchFirstColumn('SELECT id FROM users')));

// The shard.
$connection->beginTransaction();
$connection->executeStatement('SET LOCAL idgen.shard = 7');
$em->persist($grace = new User('Grace'));
$em->flush();
$connection->commit();
same(7, $connection->fetchOne('SELECT shard_of(?)', [$grace->id]));
putenv('PGOPTIONS=-c idgen.shard=9');
$connection->close();
same(9, $connection->fetchOne('SELECT shard_of(snowflake_next_id())'));

// IDENTITY asks for the last number of the old sequence.
$lost = new UserWithIdentity('lost');
$em->persist($lost);
fails('42P01', fn () => $em->flush());
$connection->executeStatement('CREATE SEQUENCE users_id_seq; SELECT nextval($$users_id_seq$$)');
$em = new EntityManager($connection, $config);
$lost = new UserWithIdentity('lost');
$em->persist($lost);
$em->flush();
same('1', $lost->id);
same(true, are_ids($connection->fetchFirstColumn("SELECT id FROM users WHERE name = 'lost'")));
echo "used: a row, 300 rows, an upsert, a page, a range of time, JSON, the traps\n";
