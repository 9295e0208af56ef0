require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "action_view/railtie"
require "rails/test_unit/railtie"
require "jbuilder"

class Gallery < Rails::Application
  config.load_defaults 6.1
  config.eager_load = false
  config.secret_key_base = "of a test"
  config.hosts.clear
  config.action_controller.allow_forgery_protection = false
  config.action_dispatch.cookies_serializer = :json    # as in a new application
  config.active_record.dump_schemas = :all
  config.active_record.schema_format = ENV.fetch("SCHEMA_FORMAT", "ruby").to_sym
end
