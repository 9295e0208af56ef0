DROP TABLE photos, users;
