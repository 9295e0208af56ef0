require_relative "helper"
require "minitest/mock"

class TrapsTest < ActiveSupport::TestCase
  self.use_transactional_tests = false

  def connection
    ActiveRecord::Base.connection
  end

  def default_of(table)
    connection.select_value("SELECT column_default FROM information_schema.columns WHERE table_name = '#{table}'")
  end

  test "a string instead of the lambda makes no default" do
    connection.create_table(:labels, id: :bigint, default: "snowflake_next_id()")
    assert_nil default_of("labels")
    label = Class.new(ActiveRecord::Base) { self.table_name = "labels" }
    assert_raises(ActiveRecord::NotNullViolation) { label.create! }

    connection.change_column_default(:labels, :id, -> { "snowflake_next_id()" })
    assert_equal "snowflake_next_id()", default_of("labels")
    connection.change_column_default(:labels, :id, "snowflake_next_id()")
    assert_nil default_of("labels")
  ensure
    connection.drop_table(:labels)
  end

  test "id: :bigint without a default makes a sequence" do
    connection.create_table(:labels, id: :bigint)
    assert_equal "nextval('labels_id_seq'::regclass)", default_of("labels")
  ensure
    connection.drop_table(:labels)
  end

  test "schema.rb gives the default to tables that have a sequence" do
    connection.create_table(:labels)
    assert_equal "snowflake_next_id()", default_of("labels")
    connection.drop_table(:labels)

    connection.create_table(:labels, id: :bigserial)
    connection.create_table(:named, id: :bigint, default: -> { "snowflake_next_id()" })
    schema = StringIO.new
    ActiveRecord::SchemaDumper.dump(connection, schema)
    assert_includes schema.string, %(create_table "labels", force: :cascade do |t|\n)
    assert_includes schema.string,
                    %(create_table "named", id: :bigint, default: -> { "snowflake_next_id()" }, force: :cascade do |t|\n)
  ensure
    connection.drop_table(:labels)
    connection.drop_table(:named)
  end

  test "structure.sql lacks the extension unless all schemas are dumped" do
    config = ActiveRecord::Base.connection_db_config
    dump = lambda do |schemas|
      ActiveRecord::Base.stub(:dump_schemas, schemas) do
        ActiveRecord::Tasks::DatabaseTasks.structure_dump(config, "tmp/dump.sql")
      end
      File.read("tmp/dump.sql")
    end
    FileUtils.mkdir_p("tmp")
    refute_match(/CREATE EXTENSION/, dump.call(:schema_search_path))
    assert_match(/^CREATE SCHEMA idgen;$.*^CREATE EXTENSION IF NOT EXISTS idgen WITH SCHEMA idgen;$/m, dump.call(:all))
  end

  test "a process that knows the old type finds nothing" do
    connection.execute("CREATE TABLE labels (id serial PRIMARY KEY, other integer)")
    label = Class.new(ActiveRecord::Base) { self.table_name = "labels" }
    label.create!
    connection.execute(<<~SQL)
      ALTER TABLE labels ALTER id TYPE bigint, ALTER id SET DEFAULT snowflake_next_id(), ALTER other TYPE bigint
    SQL
    id = connection.select_value("INSERT INTO labels (other) VALUES (1) RETURNING id")

    assert_equal id, label.last.id
    assert_nil label.find_by(id: id)
    assert_raises(ActiveRecord::RecordNotFound) { label.find(id) }
    assert_equal [false, []], [label.exists?(id), label.where(id: id).to_a]
    assert_raises(ActiveModel::RangeError) { label.create! }
    assert_raises(ActiveModel::RangeError) { label.first.update!(other: id) }
    assert_equal 2, label.count

    label.reset_column_information    # stands for a restart
    assert_equal id, label.find(id).id
    label.create!(other: id)
  ensure
    connection.drop_table(:labels)
  end

  test "a shard that is set stays with the connection" do
    shard = -> { connection.select_value("SELECT shard_of(snowflake_next_id())") }
    connection.execute("SET idgen.shard = 7")
    ActiveRecord::Base.clear_active_connections!
    assert_equal 7, shard.call
    connection.execute("RESET idgen.shard")
    assert_equal 8, ActiveRecord::Base.transaction { connection.execute("SET LOCAL idgen.shard = 8") && shard.call }
  ensure
    ActiveRecord::Base.connection.disconnect!
  end
end
