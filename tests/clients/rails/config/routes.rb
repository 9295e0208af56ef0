Rails.application.routes.draw do
  resources :photos, only: [:index, :show, :create]
  post "session", to: "photos#sign_in"
  get "session", to: "photos#signed_in"
end
