require_relative "helper"

class GalleryTest < ActiveSupport::TestCase
  fixtures :users, :photos    # in this order, because only a superuser may disable foreign keys

  def inserts
    count = 0
    counter = ->(*, payload) { count += 1 if payload[:sql].start_with?("INSERT") }
    ActiveSupport::Notifications.subscribed(counter, "sql.active_record") { yield }
    count
  end

  test "the database comes from the template, and has its shard" do
    found = ActiveRecord::Base.connection.select_rows(<<~SQL)
      SELECT shard_of(snowflake_next_id()), extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'idgen'
    SQL
    assert_equal [[5, "idgen"]], found
  end

  test "a fixture has a number of its own, and refers to another" do
    assert_equal users(:ada), photos(:sunset).user
    assert_operator photos(:sunset).id, :<, 2**30
  end

  test "rows, a page and a range of time" do
    since = 1.second.ago
    grace = User.create!(name: "Grace")
    captions = Array.new(3000) { |n| "photo #{n}" }
    ids = nil
    rows = captions.map { |caption| { user_id: grace.id, caption: caption } }
    assert_equal 1, inserts { ids = Photo.insert_all!(rows).rows.flatten }
    assert_equal ids.sort, ids
    assert_operator 2**53, :<, grace.id
    assert_operator grace.id, :<, ids.first
    assert_equal ids.zip(captions), Photo.where(user: grace).order(:id).pluck(:id, :caption)
    assert_equal grace, Photo.find(ids[7]).user

    assert_equal ids[500, 100], Photo.where("id > ?", ids[499]).order(:id).limit(100).ids
    till = 3.seconds.from_now.in_time_zone("Asia/Tokyo")
    found = Photo.where("snowflake_between(id, ?, ?)", since, till)
    assert_equal ids, found.order(:id).ids
    assert_empty Photo.where("snowflake_between(id, ?, ?)", 1.hour.ago, since)
    assert_match(/Index Cond: \(\(id >= snowflake_min_id/, found.explain)
  end

  test "an upsert leaves the ids of old rows" do
    grace = User.create!(name: "Grace", city: "New York")
    found = User.upsert_all([{ name: "Grace", city: "Arlington" }, { name: "Alan", city: "London" }], unique_by: :name)
    alan = User.find_by!(name: "Alan")
    assert_equal [grace.id, alan.id], found.rows.flatten
    assert_equal "Arlington", grace.reload.city
    assert_operator grace.id, :<, alan.id
  end

  test "a migration gives a table with serial keys the default" do
    connection = ActiveRecord::Base.connection
    connection.create_table(:labels, id: :bigserial)
    connection.change_column_default :labels, :id, -> { "snowflake_next_id()" }
    assert_equal "snowflake_next_id()", connection.columns(:labels).first.default_function
  end
end
