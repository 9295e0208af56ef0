class Integer
  def as_json(options = nil)
    abs < 2**53 ? self : to_s
  end
end
