# Checks what docs/orm/perl.md says about DBIx::Class.
use strict;
use warnings;
use JSON::PP;
use Test::More;

my %name = (name => { data_type => 'text' }, city => { data_type => 'text', is_nullable => 1 });

package Gallery::User {
    use parent 'DBIx::Class::Core';
    __PACKAGE__->table('users');
    __PACKAGE__->add_columns(
        id => { data_type => 'bigint', default_value => \'snowflake_next_id()', retrieve_on_insert => 1 },
        %name,
    );
    __PACKAGE__->set_primary_key('id');
    __PACKAGE__->add_unique_constraint(['name']);
}

package Gallery::Photo {
    use parent 'DBIx::Class::Core';
    __PACKAGE__->table('photos');
    __PACKAGE__->add_columns(
        id => { data_type => 'bigint', default_value => \'snowflake_next_id()', retrieve_on_insert => 1 },
        user_id => { data_type => 'bigint' },
        caption => { data_type => 'text' },
    );
    __PACKAGE__->set_primary_key('id');
    __PACKAGE__->belongs_to(user => 'Gallery::User', 'user_id');
}

# Other declarations of the same table.
package Gallery::Plain {
    use parent 'DBIx::Class::Core';
    __PACKAGE__->table('users');
    __PACKAGE__->add_columns(id => { data_type => 'bigint' }, %name);
    __PACKAGE__->set_primary_key('id');
}

package Gallery::Incrementing {
    use parent 'DBIx::Class::Core';
    __PACKAGE__->table('users');
    __PACKAGE__->add_columns(
        id => { data_type => 'bigint', default_value => \'snowflake_next_id()', is_auto_increment => 1 }, %name);
    __PACKAGE__->set_primary_key('id');
}

package Gallery::Text {
    use parent 'DBIx::Class::Core';
    __PACKAGE__->table('users');
    __PACKAGE__->add_columns(id => { data_type => 'bigint', default_value => 'snowflake_next_id()' }, %name);
    __PACKAGE__->set_primary_key('id');
}

package Gallery {
    use parent 'DBIx::Class::Schema';
    __PACKAGE__->register_class($_ => "Gallery::$_") for qw(User Photo Plain Incrementing Text);
}

package main;

sub connection { Gallery->connect(shift, undef, undef, { AutoCommit => 1, RaiseError => 1 }) }
sub shard { (shift->storage->dbh->selectrow_array('SELECT shard_of(snowflake_next_id())'))[0] }

my $schema = connection('dbi:Pg:');
my @warnings;
local $SIG{__WARN__} = sub { push @warnings, @_ };

$schema->deploy({ sources => [qw(User Photo)] });
my ($since) = $schema->storage->dbh->selectrow_array("SELECT now() - interval '1 second'");
my ($users, $photos) = map { $schema->resultset($_) } qw(User Photo);

my $ada = $users->create({ name => 'Ada' });
cmp_ok $ada->id, '>', 2**53, 'a row knows its id';
my @captions = map { "photo $_" } 1 .. 3000;
my @made = $photos->populate([map { { user_id => $ada->id, caption => $_ } } @captions]);
my @ids = map { $_->id } @made;
is_deeply \@ids, [sort { $a <=> $b } @ids], 'ids ascend';
is_deeply [map { [$_->id, $_->caption] } $photos->search(undef, { order_by => 'id' })],
    [map { [$ids[$_], $captions[$_]] } 0 .. 2999], 'all ids are exact';
is $photos->find($ids[7])->user->id, $ada->id, 'a row that is referred to';
$photos->populate([map { { user_id => $ada->id, caption => $_ } } @captions]);
is $photos->count, 6000, 'populate in void context';

my $updated = $users->update_or_create({ name => 'Ada', city => 'London' }, { key => 'users_name' });
is $updated->id, $ada->id, 'an upsert keeps the id';
is_deeply [map { $_->id } $photos->search({ id => { '>' => $ids[499] } }, { order_by => 'id', rows => 100 })],
    [@ids[500 .. 599]], 'a page';
my ($until) = $schema->storage->dbh->selectrow_array('SELECT now()');
my $found = $photos->search(\['snowflake_between(me.id, ?, ?)', $since, $until]);
is $found->count, 6000, 'a range of time';
is $photos->search(\['snowflake_between(me.id, ?, ?)', $since, $since])->count, 0, 'another';

my $id = $ada->id;
is encode_json({ id => $id }), "{\"id\":$id}", 'JSON has a number';
is encode_json({ id => "$id" }), "{\"id\":\"$id\"}", 'JSON has text';
cmp_ok scalar(keys %{ { map { unpack('d', pack 'd', $_) => 1 } @ids } }), '<', 3000, 'a browser would round';

$schema->txn_do(sub {
    $schema->storage->dbh->do('SET LOCAL idgen.shard = 7');
    is shard($schema), 7, 'the shard of a transaction';
});
is shard($schema), 5, 'the shard of the database';
is shard(connection("dbi:Pg:options='-c idgen.shard=7'")), 7, 'the shard of a connection';
is_deeply \@warnings, [], 'no warnings';

cmp_ok $schema->resultset('Plain')->create({ name => 'Grace' })->id, '>', $ada->id, 'a plain key is retrieved';
like "@warnings", qr/Missing value for primary key column 'id' on Plain/, 'with a warning';
like $schema->deployment_statements('PostgreSQL', undef, undef, { sources => ['Incrementing'] }),
    qr/id bigserial DEFAULT snowflake_next_id\(\)/, 'is_auto_increment makes a sequence';
like $schema->deployment_statements('PostgreSQL', undef, undef, { sources => ['Text'] }),
    qr/id bigint DEFAULT 'snowflake_next_id\(\)'/, 'a string as the default is text';
eval { $schema->storage->dbh->last_insert_id(undef, undef, 'users', undef) };
like $@, qr/No suitable column found for last_insert_id/, 'last_insert_id fails';
done_testing;
