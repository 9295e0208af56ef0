-- Run once by a superuser: a template for the databases of those who are none.
CREATE DATABASE idgen_template IS_TEMPLATE true;
\connect idgen_template
CREATE SCHEMA idgen;
GRANT USAGE ON SCHEMA idgen TO PUBLIC;
CREATE EXTENSION idgen SCHEMA idgen;
