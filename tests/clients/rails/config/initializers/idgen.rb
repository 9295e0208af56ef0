require "active_record/connection_adapters/postgresql_adapter"

ActiveRecord::ConnectionAdapters::PostgreSQLAdapter::NATIVE_DATABASE_TYPES[:primary_key] =
  "bigint DEFAULT snowflake_next_id() PRIMARY KEY"
