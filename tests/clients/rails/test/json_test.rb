require_relative "helper"

class JsonTest < ActionDispatch::IntegrationTest
  # How a browser reads the text.
  def rounded(id)
    id.to_f.to_i
  end

  # Runs the block without the initializer.
  def with_numbers
    text = Integer.instance_method(:as_json)
    Integer.remove_method(:as_json)
    yield
  ensure
    Integer.define_method(:as_json, text)
  end

  setup do
    @alan = User.create!(name: "Alan")
    @photo = Photo.create!(user: @alan, caption: "harbour")
  end

  test "a browser would round a number" do
    with_numbers do
      assert_equal %({"id":#{@photo.id}}), { id: @photo.id }.to_json
    end
    ids = Photo.insert_all!(Array.new(100) { { user_id: @alan.id, caption: "many" } }).rows.flatten
    assert_operator ids.map { |id| rounded(id) }.uniq.size, :<, 100
  end

  test "ids in JSON are text, and other numbers are numbers" do
    user = User.create!(name: "Grace")
    photo = Photo.create!(user: user, caption: "one", note: { size: 7 })
    expected = { "id" => photo.id.to_s, "user_id" => user.id.to_s, "caption" => "one", "note" => { "size" => 7 } }
    assert_equal expected, JSON.parse(photo.to_json)
    assert_equal [expected], JSON.parse([photo].to_json)
    assert_equal expected.to_json, ActiveSupport::JSON.encode(photo)
    assert_equal %({"id":"#{photo.id}"}), { id: photo.id }.to_json
    assert_equal %([9007199254740991,"9007199254740992",-9007199254740991]), [2**53 - 1, 2**53, 1 - 2**53].to_json
    get "/photos"
    assert_includes JSON.parse(response.body), expected
    get "/photos/#{photo.id}.json"
    assert_equal expected.except("note"), JSON.parse(response.body)
  end

  test "a client sends the text back" do
    user = User.create!(name: "Grace")
    post "/photos", params: { photo: { user_id: user.id.to_s, caption: "two" } }, as: :json
    assert_equal user, Photo.find(JSON.parse(response.body).fetch("id")).user
  end

  test "JSON.generate writes numbers" do
    assert_equal %({"id":#{@photo.id}}), JSON.generate({ id: @photo.id })
  end

  test "a column of JSON and a session receive text" do
    @photo.update!(note: { first: @photo.id })
    assert_equal({ "first" => @photo.id.to_s }, @photo.reload.note)

    user = User.create!(name: "Grace")
    post "/session", params: { user_id: user.id }
    get "/session"
    assert_equal "String Grace", response.body
    with_numbers do
      post "/session", params: { user_id: user.id }
      get "/session"
      assert_equal "Integer Grace", response.body
    end
  end
end
