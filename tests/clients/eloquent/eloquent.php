<?php
// Checks what docs/orm/php.md says about Eloquent.
require __DIR__ . '/../php.php';
require 'Illuminate/Database/autoload.php';
require 'Illuminate/Filesystem/autoload.php';

use Illuminate\Database\Capsule\Manager as DB;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\Migrations\DatabaseMigrationRepository;
use Illuminate\Database\Migrations\Migrator;
use Illuminate\Database\Schema\Blueprint;
use Illuminate\Filesystem\Filesystem;

$config = [
    'driver' => 'pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'database' => getenv('PGDATABASE'),
    'username' => getenv('PGUSER'), 'password' => getenv('PGPASSWORD'),
    'schema' => 'public',    // as in a new application
];
$capsule = new DB;
$capsule->addConnection($config);
$capsule->addConnection(['schema' => ['public', 'idgen']] + $config, 'both');
$capsule->setAsGlobal();
$capsule->bootEloquent();

$repository = new DatabaseMigrationRepository($capsule->getDatabaseManager(), 'migrations');
$repository->createRepository();
$migrator = new Migrator($repository, $capsule->getDatabaseManager(), new Filesystem);
same(1, count($migrator->run(['migrations'])));
same([], $migrator->run(['migrations']));

class User extends Model
{
    protected $keyType = 'string';
    protected $guarded = [];
    public $timestamps = false;

    public function photos()
    {
        return $this->hasMany(Photo::class);
    }
}

class Photo extends Model
{
    protected $keyType = 'string';
    protected $casts = ['user_id' => 'string'];
    protected $guarded = [];
    public $timestamps = false;

    public function user()
    {
        return $this->belongsTo(User::class);
    }
}

// Models with integers as keys, and with keys that Eloquent does not expect from the database.
class Plain extends Model
{
    protected $table = 'users';
    protected $guarded = [];
    public $timestamps = false;
}

class NotIncrementing extends Plain
{
    public $incrementing = false;
}

// A row, 3000 rows, an upsert, a page, a range of time.
$since = new DateTimeImmutable('-1 second', new DateTimeZone('Asia/Tokyo'));
$ada = User::create(['name' => 'Ada']);
same(true, are_ids([(int) $ada->id]));
$captions = array_map(fn ($n) => "photo $n", range(1, 3000));
DB::connection()->enableQueryLog();
same(true, Photo::insert(array_map(fn ($caption) => ['user_id' => $ada->id, 'caption' => $caption], $captions)));
same(1, count(DB::getQueryLog()));
DB::connection()->disableQueryLog();
$rows = Photo::orderBy('id')->get();
$ids = $rows->pluck('id')->all();
same($captions, $rows->pluck('caption')->all());
same(true, are_ids(array_map('intval', $ids)) && $ada->is($rows[7]->user));

same(2, User::upsert([['name' => 'Ada', 'city' => 'London'], ['name' => 'Alan', 'city' => 'London']], ['name'], ['city']));
same([$ada->id], User::where('name', 'Ada')->where('city', 'London')->pluck('id')->all());
same(true, User::firstWhere('name', 'Alan')->id > $ada->id);

same(array_slice($ids, 500, 100), Photo::where('id', '>', $ids[499])->orderBy('id')->limit(100)->pluck('id')->all());
$until = $since->modify('+1 minute');
$found = Photo::whereRaw('idgen.snowflake_between(id, ?, ?)', [$since->format(DATE_ATOM), $until->format(DATE_ATOM)]);
same($ids, $found->orderBy('id')->pluck('id')->all());
same(0, Photo::whereRaw('idgen.snowflake_between(id, ?, ?)', [$since, $until])->count());    // Tokyo's time, taken for UTC

// JSON.
$photo = Photo::with('user')->find($ids[0]);
$user = ['id' => $ada->id, 'name' => 'Ada', 'city' => 'London'];
$expected = ['id' => $ids[0], 'user_id' => $ada->id, 'caption' => 'photo 1', 'user' => $user];
same(json_encode($expected), $photo->toJson());
same(3000, User::with('photos')->find($ada->id)->photos->count());
same("{\"id\":{$ada->id},\"name\":\"Ada\",\"city\":\"London\"}", Plain::find($ada->id)->toJson());
same(true, count(array_unique(array_map('rounded', array_map('intval', $ids)))) < 3000);

// Traps.
$lost = NotIncrementing::create(['name' => 'lost']);
same(null, $lost->id);
$lost->city = 'Paris';
same(true, $lost->save());
same([null], Plain::where('name', 'lost')->pluck('city')->all());

fails('22P02', fn () => DB::schema()->create('labels', function (Blueprint $table) {
    $table->bigInteger('id')->primary()->default('idgen.snowflake_next_id()');
}));
fails('42601', fn () => DB::schema()->create('labels', function (Blueprint $table) {
    $table->id()->default(DB::raw('idgen.snowflake_next_id()'));
}));

fails('42883', fn () => DB::select('SELECT snowflake_next_id()'));
same('public', DB::selectOne('SHOW search_path')->search_path);
$both = DB::connection('both');
same(5, $both->selectOne('SELECT shard_of(snowflake_next_id())')->shard_of);
fails('42501', fn () => $both->getSchemaBuilder()->dropAllViews());
DB::schema()->dropAllViews();

// The shard.
DB::transaction(function () {
    DB::select("SELECT set_config('idgen.shard', ?, true)", [7]);
    $grace = User::create(['name' => 'Grace']);
    same(7, DB::selectOne('SELECT idgen.shard_of(?)', [$grace->id])->shard_of);
});
same(5, DB::selectOne('SELECT idgen.shard_of(idgen.snowflake_next_id())')->shard_of);
putenv('PGOPTIONS=-c idgen.shard=9');
DB::reconnect();
same(9, DB::selectOne('SELECT idgen.shard_of(idgen.snowflake_next_id())')->shard_of);
echo "used: a row, 3000 rows, an upsert, a page, a range of time, JSON, the traps\n";
