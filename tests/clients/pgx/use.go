package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

var ctx = context.Background()

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

type database interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, arguments ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, arguments ...any) pgx.Row
}

func one[T any](db database, sql string, arguments ...any) (value T) {
	must(db.QueryRow(ctx, sql, arguments...).Scan(&value))
	return
}

func all[T any](db database, sql string, arguments ...any) (values []T) {
	rows, err := db.Query(ctx, sql, arguments...)
	must(err)
	defer rows.Close()
	for rows.Next() {
		var value T
		must(rows.Scan(&value))
		values = append(values, value)
	}
	must(rows.Err())
	return
}

func pool(change func(*pgxpool.Config)) *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	must(err)
	config.MaxConns = 1
	change(config)
	pool, err := pgxpool.ConnectConfig(ctx, config)
	must(err)
	return pool
}

const shardOfNext = "SELECT shard_of(snowflake_next_id())"

func rows(db *pgxpool.Pool) {
	since := time.Now().Add(-time.Second).In(time.FixedZone("far", -9*3600))
	_, err := db.Exec(ctx, `
		CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text UNIQUE);
		CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(),
			user_id bigint NOT NULL REFERENCES users, caption text)`)
	must(err)

	var user int64
	err = db.QueryRow(ctx, "INSERT INTO users (name) VALUES ($1) RETURNING id", "Ada").Scan(&user)
	must(err)
	check(user > 1<<53, user)
	again := one[int64](db, `INSERT INTO users (name) VALUES ($1)
		ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id`, "Ada")
	check(again == user, again, user)

	captions := make([]string, 3000)
	for n := range captions {
		captions[n] = fmt.Sprint("photo ", n)
	}
	rows, err := db.Query(ctx, `
		INSERT INTO photos (user_id, caption) SELECT $1, unnest($2::text[]) RETURNING id`, user, captions)
	must(err)
	var ids []int64
	for rows.Next() {
		var id int64
		must(rows.Scan(&id))
		ids = append(ids, id)
	}
	must(rows.Err())
	check(len(ids) == 3000 && ids[0] > user)
	check(sort.SliceIsSorted(ids, func(a, b int) bool { return ids[a] < ids[b] }))
	check(reflect.DeepEqual(all[string](db, "SELECT caption FROM photos ORDER BY id"), captions))
	check(reflect.DeepEqual(
		all[int64](db, "SELECT id FROM photos WHERE id > $1 ORDER BY id LIMIT 100", ids[499]), ids[500:600]))
	check(reflect.DeepEqual(all[int64](db, "SELECT id FROM photos WHERE id = ANY($1) ORDER BY id", ids[:9]), ids[:9]))

	// COPY mints ids, but returns only how many rows there are.
	copied, err := db.CopyFrom(ctx, pgx.Identifier{"photos"}, []string{"user_id", "caption"},
		pgx.CopyFromSlice(3000, func(n int) ([]any, error) { return []any{user, captions[n]}, nil }))
	must(err)
	check(copied == 3000)
	check(one[int](db, "SELECT count(*) FROM photos WHERE id > $1", ids[2999]) == 3000)

	found := all[int64](db, "SELECT id FROM photos WHERE snowflake_between(id, $1, $2)",
		since, time.Now().Add(3*time.Second))
	check(len(found) == 6000, len(found))
	check(len(all[int64](db, "SELECT id FROM photos WHERE snowflake_between(id, $1, $2)",
		since.Add(-time.Hour), since)) == 0)
}

func shards(db *pgxpool.Pool) {
	// The server decides that the parameter is an integer, so any Go integer will do.
	for _, shard := range []any{7, int32(7), int64(7)} {
		check(one[int](db, "SELECT shard_of(snowflake_next_id($1))", shard) == 7, shard)
	}

	// A setting of one session is still in effect in the next one.
	leaky := pool(func(*pgxpool.Config) {})
	_, err := leaky.Exec(ctx, "SET idgen.shard = 7")
	must(err)
	check(one[int](leaky, shardOfNext) == 7)
	leaky.Close()

	transaction, err := db.Begin(ctx)
	must(err)
	_, err = transaction.Exec(ctx, "SELECT set_config('idgen.shard', $1, true)", "7")
	must(err)
	check(one[int](transaction, shardOfNext) == 7)
	must(transaction.Commit(ctx))
	check(one[int](db, shardOfNext) == 5)

	other := pool(func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["idgen.shard"] = "7"
	})
	check(one[int](other, shardOfNext) == 7)
	other.Close()
	url, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL")+"?idgen.shard=7")
	must(err)
	check(one[int](url, shardOfNext) == 7)
	must(url.Close(ctx))
}

type Photo struct {
	ID       int64   `json:"id,string"`
	UserID   int64   `json:"user_id,string"`
	Likes    []int64 `json:"likes,string"`
	Previous *int64  `json:"previous,string"`
}

func texts() {
	const id = 499440859704464385
	photo := Photo{ID: id, UserID: id + 1, Likes: []int64{id}}
	text, err := json.Marshal(photo)
	must(err)
	// The option does nothing for a slice.
	check(string(text) == `{"id":"499440859704464385","user_id":"499440859704464386",`+
		`"likes":[499440859704464385],"previous":null}`, string(text))
	var back Photo
	must(json.Unmarshal(text, &back))
	check(reflect.DeepEqual(back, photo), back)

	// It refuses a number, even an exact one.
	err = json.Unmarshal([]byte(`{"id":499440859704464385}`), &back)
	check(err != nil && err.Error() ==
		"json: invalid use of ,string struct tag, trying to unmarshal unquoted value into int64", err)

	// Without a type, a number becomes a double.
	var anything map[string]any
	must(json.Unmarshal([]byte(`{"id":499440859704464385}`), &anything))
	check(anything["id"] == 499440859704464384.0, anything)
	var typed struct{ ID int64 }
	must(json.Unmarshal([]byte(`{"id":499440859704464385}`), &typed))
	check(typed.ID == id)
}

func main() {
	db := pool(func(*pgxpool.Config) {})
	rows(db)
	shards(db)
	texts()
	db.Close()
	fmt.Println("used: a row, an upsert, 3000 rows in a statement and by COPY, a page, a range of time, JSON")
}
