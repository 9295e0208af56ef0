class Photo < ActiveRecord::Base
  belongs_to :user
end
