package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/jinzhu/gorm"
	_ "github.com/jinzhu/gorm/dialects/postgres"
)

type User struct {
	ID     int64  `gorm:"type:bigint DEFAULT snowflake_next_id()"`
	Name   string `gorm:"unique"`
	Photos []Photo
}

type Photo struct {
	ID      int64 `gorm:"type:bigint DEFAULT snowflake_next_id()"`
	User    User
	UserID  int64 `gorm:"type:bigint NOT NULL REFERENCES users"`
	Caption string
}

type Asked struct {
	ID int64 `gorm:"type:bigint;default:snowflake_next_id()"`
}

type Twice struct {
	ID int64 `gorm:"default:snowflake_next_id()"`
}

type Counted struct {
	gorm.Model
	UserID uint
}

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

func fails(err error, with string) {
	check(err != nil && strings.Contains(err.Error(), with), err)
}

var statements int

type counter struct{}

func (counter) Print(values ...any) {
	if values[0] == "sql" {
		statements++
	}
}

func open(more string) *gorm.DB {
	db, err := gorm.Open("postgres", os.Getenv("DATABASE_URL")+"?sslmode=disable"+more)
	must(err)
	db.DB().SetMaxOpenConns(1)
	db.SetLogger(counter{})
	return db
}

func one[T any](db *gorm.DB, query string, arguments ...any) (value T) {
	must(db.Raw(query, arguments...).Row().Scan(&value))
	return
}

func column(db *gorm.DB, name string) string {
	table, column, _ := strings.Cut(name, ".")
	return one[string](db, `SELECT concat_ws(' ', data_type, column_default) FROM information_schema.columns
		WHERE table_name = ? AND column_name = ?`, table, column)
}

func rows(db *gorm.DB) {
	since := time.Now().Add(-time.Second)
	for range []int{1, 2} {
		must(db.AutoMigrate(&User{}, &Photo{}).Error)
		check(column(db, "users.id") == "bigint snowflake_next_id()", column(db, "users.id"))
		check(column(db, "photos.user_id") == "bigint", column(db, "photos.user_id"))
		check(one[int](db, "SELECT count(*) FROM pg_constraint WHERE contype = 'f'") == 1)
	}

	ada := User{Name: "Ada"}
	must(db.Create(&ada).Error)
	check(ada.ID > 1<<53, ada)

	// One statement for each row.
	grace := User{Name: "Grace"}
	for n := 0; n < 300; n++ {
		grace.Photos = append(grace.Photos, Photo{Caption: fmt.Sprint("photo ", n)})
	}
	db.LogMode(true)
	must(db.Create(&grace).Error)
	db.LogMode(false)
	check(statements == 301, statements)
	var ids, found []int64
	for n, photo := range grace.Photos {
		check(photo.ID > grace.ID && photo.UserID == grace.ID && (n == 0 || photo.ID > ids[n-1]), photo)
		ids = append(ids, photo.ID)
	}
	must(db.Model(&Photo{}).Where("id > ?", ids[49]).Order("id").Limit(100).Pluck("id", &found).Error)
	check(reflect.DeepEqual(found, ids[50:150]))
	var read User
	must(db.Preload("Photos").First(&read, grace.ID).Error)
	check(reflect.DeepEqual(read, grace))

	again := User{Name: "Ada"}
	must(db.Set("gorm:insert_option", "ON CONFLICT (name) DO UPDATE SET name = excluded.name").
		Create(&again).Error)
	check(again.ID == ada.ID, again)

	var photos []Photo
	until := time.Now().Add(3 * time.Second)
	db.Where("snowflake_between(id, ?, ?)", since, until).Order("id").Find(&photos)
	check(len(photos) == 300, len(photos))
	db.Where("snowflake_between(id, ?, ?)", since.Add(-time.Hour), since).Find(&photos)
	check(len(photos) == 0, len(photos))
}

func traps(db *gorm.DB) {
	// The option `default` makes GORM read the id again, and with a serial it is a second default.
	must(db.AutoMigrate(&Asked{}).Error)
	statements = 0
	db.LogMode(true)
	asked := Asked{}
	must(db.Create(&asked).Error)
	db.LogMode(false)
	check(statements == 2 && asked.ID > 1<<53, statements, asked)
	fails(db.AutoMigrate(&Twice{}).Error, "multiple default values specified")

	// A uint, such as the key of gorm.Model, is too small.
	must(db.AutoMigrate(&Counted{}).Error)
	check(column(db, "counteds.id") == "integer nextval('counteds_id_seq'::regclass)", column(db, "counteds.id"))
	check(column(db, "counteds.user_id") == "integer", column(db, "counteds.user_id"))
	fails(db.Create(&Counted{UserID: uint(asked.ID)}).Error, "is out of range for type integer")
}

func main() {
	db := open("")
	rows(db)
	traps(db)
	must(db.Close())

	other := open("&idgen.shard=7")
	check(one[int](other, "SELECT shard_of(snowflake_next_id())") == 7)
	must(other.Close())
	fmt.Println("used: migrations, a row, 300 rows of another, an upsert, a page, a range of time")
}
