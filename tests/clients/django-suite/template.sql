-- Django creates the extensions that it tests, but bloom is not a trusted extension.
CREATE DATABASE django_plain IS_TEMPLATE true;
\connect django_plain
CREATE EXTENSION bloom;
CREATE DATABASE django_idgen IS_TEMPLATE true TEMPLATE idgen_template;
\connect django_idgen
CREATE EXTENSION bloom;
