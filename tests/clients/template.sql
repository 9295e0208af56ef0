-- A superuser runs this once: it creates the template for the databases of ordinary roles.
CREATE DATABASE idgen_template IS_TEMPLATE true;
\connect idgen_template
CREATE SCHEMA idgen;
GRANT USAGE ON SCHEMA idgen TO PUBLIC;
CREATE EXTENSION idgen SCHEMA idgen;
