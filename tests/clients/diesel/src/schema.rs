// @generated automatically by Diesel CLI.

diesel::table! {
    photos (id) {
        id -> Int8,
        user_id -> Int8,
        caption -> Text,
    }
}

diesel::table! {
    users (id) {
        id -> Int8,
        name -> Text,
    }
}

diesel::joinable!(photos -> users (user_id));

diesel::allow_tables_to_appear_in_same_query!(photos, users,);
