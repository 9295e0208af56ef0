class User < ActiveRecord::Base
  has_many :photos
end
