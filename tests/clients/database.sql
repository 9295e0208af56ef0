-- For each client: an ordinary role and its database.
CREATE ROLE :"name" LOGIN CREATEDB PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name" TEMPLATE idgen_template;
ALTER DATABASE :"name" SET search_path = "$user", public, idgen;
ALTER DATABASE :"name" SET idgen.shard = 5;
