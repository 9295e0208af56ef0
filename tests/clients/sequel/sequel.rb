# Checks what docs/orm/ruby.md says about Sequel.
require "logger"
require "minitest/autorun"
require "sequel"

URL = ENV.fetch("DATABASE_URL")
DB = Sequel.connect(URL)
Sequel.extension :migration
Sequel::Migrator.run(DB, "migrations")
DB.extension :schema_dumper

class User < Sequel::Model; end

class Photo < Sequel::Model
  plugin :json_serializer
  many_to_one :user
end

class SequelTest < Minitest::Test
  def shard(db)
    db.get { shard_of(snowflake_next_id.function) }
  end

  # The user's name is unique.
  def new_user
    User.create(name: name)
  end

  def test_migrations_are_run_once
    assert Sequel::Migrator.is_current?(DB, "migrations")
    assert_equal ["snowflake_next_id()"] * 2,
                 %i[users photos].map { |table| DB.schema(table).to_h.fetch(:id).fetch(:default) }
    assert_equal "bigint", DB.schema(:photos).to_h.fetch(:user_id).fetch(:db_type)
  end

  def test_rows_a_page_and_a_range_of_time
    since = Time.now - 1
    user = new_user
    assert_operator 2**53, :<, user.id
    assert_operator user.id, :<, DB[:photos].insert(user_id: user.id, caption: "first")
    Photo.where(user_id: user.id).delete

    rows = Array.new(3000) { |n| { user_id: user.id, caption: "photo #{n}" } }
    log = StringIO.new
    DB.loggers << Logger.new(log)
    ids = DB[:photos].multi_insert(rows, return: :primary_key)
    DB.loggers.clear
    assert_equal 1, log.string.scan("INSERT").size
    assert_equal ids.sort, ids
    photos = Photo.where(user_id: user.id).order(:id)
    assert_equal ids.zip(rows.map { |row| row[:caption] }), photos.select_map(%i[id caption])
    assert_equal user, Photo[ids[7]].user

    assert_equal ids[500, 100], photos.where { id > ids[499] }.limit(100).map(:id)
    till = Time.now + 3
    assert_equal ids, photos.where(Sequel.function(:snowflake_between, :id, since, till)).map(:id)
    assert_empty Photo.where(Sequel.function(:snowflake_between, :id, since - 60, since))
  end

  def test_an_upsert_returns_the_ids_of_old_rows
    user = new_user
    rows = [{ name: user.name, city: "London" }, { name: "#{name} 2", city: "Paris" }]
    users = DB[:users].insert_conflict(target: :name, update: { city: Sequel[:excluded][:city] })
    ids = users.multi_insert(rows, return: :primary_key)
    assert_equal [user.id, User.first(name: "#{name} 2").id], ids
    assert_equal "London", user.refresh.city
  end

  def test_a_foreign_key_without_a_type_is_an_integer
    DB.create_table(:labels) { foreign_key :user_id, :users }
    error = assert_raises(Sequel::DatabaseError) { DB[:labels].insert(user_id: new_user.id) }
    assert_match(/NumericValueOutOfRange/, error.message)
  ensure
    DB.drop_table(:labels)
  end

  def test_a_string_as_the_default_fails
    error = assert_raises(Sequel::DatabaseError) do
      DB.create_table(:labels) { primary_key :id, type: :Bignum, default: "snowflake_next_id()" }
    end
    assert_match(/InvalidTextRepresentation/, error.message)
  end

  def test_a_dump_for_other_databases_has_no_default
    refute_includes DB.dump_table_schema(:users), "snowflake"
    assert_includes DB.dump_table_schema(:users, same_db: true),
                    'default=>Sequel::LiteralString.new("snowflake_next_id()")'
  end

  def test_json_has_numbers
    photo = Photo.create(user_id: new_user.id, caption: "one")
    assert_includes photo.to_json, %("id":#{photo.id},)
  end

  def test_the_shard
    pool = Sequel.connect(URL, max_connections: 1)
    pool.run("SET idgen.shard = 7")
    assert_equal 7, shard(pool)
    pool.run("RESET idgen.shard")
    pool.transaction do
      pool.get(Sequel.function(:set_config, "idgen.shard", "7", true))
      assert_equal 7, shard(pool)
    end
    assert_equal 5, shard(pool)
    pool.disconnect

    db = Sequel.connect(URL, driver_options: { options: "-c idgen.shard=7" })
    assert_equal 7, shard(db)
    db.disconnect
  end
end
