class PhotosController < ActionController::Base
  def index
    render json: Photo.order(:id)
  end

  def show
    @photo = Photo.find(params[:id])
  end

  def create
    render json: Photo.create!(params.require(:photo).permit(:user_id, :caption))
  end

  def sign_in
    session[:user_id] = User.find(params[:user_id]).id
  end

  def signed_in
    render plain: "#{session[:user_id].class} #{User.find(session[:user_id]).name}"
  end
end
