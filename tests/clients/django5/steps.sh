# Sourced by the `run` of both versions of Django, with its packages in the PATH. Works in a copy of the folder, because
# Django writes migrations beside the models.
rm -rf "$IDGEN_CLIENT_DIR/work"
cp -R ../django5 "$IDGEN_CLIENT_DIR/work"
cp -R ../../../docs/examples/django/idgen_backend "$IDGEN_CLIENT_DIR/work"
cd "$IDGEN_CLIENT_DIR/work"
python -m django --version
python manage.py makemigrations -v 0 gallery
python manage.py migrate -v 0
python manage.py makemigrations --check --dry-run
python manage.py shell -v 0 <use.py
python manage.py test --noinput
