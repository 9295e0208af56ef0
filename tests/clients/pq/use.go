package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/lib/pq"
)

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

func open(more string) *sql.DB {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL")+"?sslmode=disable"+more)
	must(err)
	db.SetMaxOpenConns(1)
	return db
}

type rower interface {
	QueryRow(query string, arguments ...any) *sql.Row
}

func one[T any](db rower, query string, arguments ...any) (value T) {
	must(db.QueryRow(query, arguments...).Scan(&value))
	return
}

func ids(db *sql.DB, query string, arguments ...any) (ids []int64) {
	rows, err := db.Query(query, arguments...)
	must(err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		must(rows.Scan(&id))
		ids = append(ids, id)
	}
	must(rows.Err())
	return
}

const shardOfNext = "SELECT shard_of(snowflake_next_id())"

func rows(db *sql.DB) {
	since := time.Now().Add(-time.Second).In(time.FixedZone("far", -9*3600))
	_, err := db.Exec(`
		CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text UNIQUE);
		CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(),
			user_id bigint NOT NULL REFERENCES users, caption text)`)
	must(err)

	insert := "INSERT INTO users (name) VALUES ($1)"
	user := one[int64](db, insert+" RETURNING id", "Ada")
	check(user > 1<<53, user)
	again := one[int64](db, insert+" ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id", "Ada")
	check(again == user, again, user)
	result, err := db.Exec(insert, "Grace")
	must(err)
	_, err = result.LastInsertId()
	check(err != nil && err.Error() == "LastInsertId is not supported by this driver", err)

	captions := make([]string, 3000)
	for n := range captions {
		captions[n] = fmt.Sprint("photo ", n)
	}
	made := ids(db, "INSERT INTO photos (user_id, caption) SELECT $1, unnest($2::text[]) RETURNING id",
		user, pq.Array(captions))
	check(len(made) == 3000 && made[0] > user)
	check(reflect.DeepEqual(ids(db, "SELECT id FROM photos ORDER BY substr(caption, 7)::integer"), made))
	check(reflect.DeepEqual(ids(db, "SELECT id FROM photos ORDER BY id"), made))
	check(reflect.DeepEqual(
		ids(db, "SELECT id FROM photos WHERE id > $1 ORDER BY id LIMIT 100", made[499]), made[500:600]))
	check(reflect.DeepEqual(
		ids(db, "SELECT id FROM photos WHERE id = ANY($1) ORDER BY id", pq.Array(made[:9])), made[:9]))

	// COPY mints ids, but returns none.
	transaction, err := db.Begin()
	must(err)
	copied, err := transaction.Prepare(pq.CopyIn("photos", "user_id", "caption"))
	must(err)
	for _, caption := range captions {
		_, err = copied.Exec(user, caption)
		must(err)
	}
	_, err = copied.Exec()
	must(err)
	must(transaction.Commit())
	check(one[int](db, "SELECT count(*) FROM photos WHERE id > $1", made[2999]) == 3000)

	found := ids(db, "SELECT id FROM photos WHERE snowflake_between(id, $1, $2)",
		since, time.Now().Add(3*time.Second))
	check(len(found) == 6000, len(found))
	check(len(ids(db, "SELECT id FROM photos WHERE snowflake_between(id, $1, $2)", since.Add(-time.Hour), since)) == 0)
}

func shards(db *sql.DB) {
	// The server decides that the parameter is an integer, so any Go integer will do.
	for _, shard := range []any{7, int32(7), int64(7)} {
		check(one[int](db, "SELECT shard_of(snowflake_next_id($1))", shard) == 7, shard)
	}

	// A setting of one session is still in effect in the next one.
	leaky := open("")
	_, err := leaky.Exec("SET idgen.shard = 7")
	must(err)
	session, err := leaky.Conn(context.Background())
	must(err)
	var shard int
	must(session.QueryRowContext(context.Background(), shardOfNext).Scan(&shard))
	check(shard == 7)
	must(session.Close())
	must(leaky.Close())

	transaction, err := db.Begin()
	must(err)
	_, err = transaction.Exec("SELECT set_config('idgen.shard', $1, true)", "7")
	must(err)
	check(one[int](transaction, shardOfNext) == 7)
	must(transaction.Commit())
	check(one[int](db, shardOfNext) == 5)

	other := open("&idgen.shard=7")
	check(one[int](other, shardOfNext) == 7)
	must(other.Close())
}

func main() {
	db := open("")
	rows(db)
	shards(db)
	must(db.Close())
	fmt.Println("used: a row, an upsert, 3000 rows in a statement and by COPY, a page, a range of time")
}
