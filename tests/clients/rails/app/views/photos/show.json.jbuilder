json.extract! @photo, :id, :user_id, :caption
