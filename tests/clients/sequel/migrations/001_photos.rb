Sequel.migration do
  change do
    create_table(:users) do
      primary_key :id, type: :Bignum, default: Sequel.function(:snowflake_next_id)
      String :name, null: false, unique: true
      String :city
    end
    create_table(:photos) do
      primary_key :id, type: :Bignum, default: Sequel.function(:snowflake_next_id)
      foreign_key :user_id, :users, type: :Bignum, null: false
      String :caption, null: false
    end
  end
end
