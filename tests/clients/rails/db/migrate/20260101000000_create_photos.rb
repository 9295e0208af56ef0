class CreatePhotos < ActiveRecord::Migration[6.1]
  def change
    create_table :users do |t|
      t.string :name, null: false, index: { unique: true }
      t.string :city
    end
    create_table :photos, id: :bigint, default: -> { "snowflake_next_id()" } do |t|
      t.references :user, null: false, foreign_key: true
      t.string :caption, null: false
      t.jsonb :note
    end
  end
end
