package desk

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

//go:embed sql/*.sql
var statements embed.FS

// statement is the SQL of a file of this package.
func statement(name string) string {
	raw, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	return string(raw)
}

// A Shop is the far side of the desk's tools: orders and a ledger in a file of
// their own, which several processes may open. It stands for somebody else's
// system and so knows nothing of calls: asked twice under two keys, it pays
// twice.
type Shop struct{ db *sql.DB }

// An Order of a customer. Its version rises with each change.
type Order struct {
	ID       string
	Customer string
	Item     string
	Cents    int64
	Version  int
}

// Total is the order's sum in words.
func (o Order) Total() string { return Euros(o.Cents) }

// Euros is a sum in words.
func Euros(cents int64) string { return fmt.Sprintf("%d.%02d EUR", cents/100, cents%100) }

// A Receipt is a line of the ledger.
type Receipt struct {
	Receipt string `json:"receipt"`
	Of      string `json:"of"`
	Paid    string `json:"paid"`
}

// A Tally is what the ledger has of one kind and subject.
type Tally struct {
	Lines int   // done so often
	Asked int   // asked for so often, the same key again included
	Cents int64 // in total
	Last  int64 // id of the last line
}

// Kinds of ledger lines.
const (
	KindRefund  = "refund"
	KindVoucher = "voucher"
	KindPart    = "part"
	KindPayout  = "payout"
)

// OpenShop opens the shop in a folder, and makes it if there is none.
func OpenShop(folder string) (*Shop, error) {
	q := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	path, err := filepath.Abs(filepath.Join(folder, "shop.db"))
	if err != nil {
		return nil, err
	}
	// A drive letter comes behind a slash, or else it would be read as a host.
	u := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/"), RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(statement("schema")); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the shop: %w", err), db.Close())
	}
	return &Shop{db}, nil
}

// Close closes the shop.
func (s *Shop) Close() error { return s.db.Close() }

// Stock takes in a handful of new orders and returns them.
func (s *Shop) Stock(ctx context.Context) ([]Order, error) {
	var orders []Order
	for _, o := range []Order{
		{Customer: "Kim Berg", Item: "a kettle", Cents: 4000},
		{Customer: "Lou Chen", Item: "two lamps", Cents: 3550},
		{Customer: "Mia Duarte", Item: "a scarf", Cents: 2500},
		{Customer: "Noor Evans", Item: "a bicycle", Cents: 24000},
		{Customer: "Ola Fisk", Item: "a teapot", Cents: 1800},
		{Customer: "Pat Greco", Item: "a sofa", Cents: 61000},
	} {
		row := s.db.QueryRowContext(ctx, statement("add_order"), o.Customer, o.Item, o.Cents)
		if err := row.Scan(&o.ID, &o.Customer, &o.Item, &o.Cents, &o.Version); err != nil {
			return nil, fmt.Errorf("adding an order: %w", err)
		}
		orders = append(orders, o)
	}
	return orders, nil
}

// Order returns an order as it is now.
func (s *Shop) Order(ctx context.Context, id string) (Order, error) {
	var o Order
	err := s.db.QueryRowContext(ctx, statement("order"), id).Scan(&o.ID, &o.Customer, &o.Item, &o.Cents, &o.Version)
	if errors.Is(err, sql.ErrNoRows) {
		return o, fmt.Errorf("there is no order %q", id)
	}
	return o, err
}

// Orders returns all orders, oldest first.
func (s *Shop) Orders(ctx context.Context) ([]Order, error) {
	rows, err := s.db.QueryContext(ctx, statement("orders"))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var orders []Order
	for rows.Next() {
		var o Order
		if err := rows.Scan(&o.ID, &o.Customer, &o.Item, &o.Cents, &o.Version); err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// Reprice changes what an order cost.
func (s *Shop) Reprice(ctx context.Context, id string, cents int64) error {
	_, err := s.db.ExecContext(ctx, statement("reprice"), cents, id)
	return err
}

// Book does something and puts it in the ledger. The same key again does
// nothing more and returns the same receipt.
func (s *Shop) Book(ctx context.Context, kind, subject string, cents int64, key string) (Receipt, error) {
	var id int64
	if err := s.db.QueryRowContext(ctx, statement("book"), key, kind, subject, cents).Scan(&id, &cents); err != nil {
		return Receipt{}, err
	}
	return ReceiptOf(id, subject, cents), nil
}

// Pay has the bank pay. The bank takes no keys: each time it is asked it pays,
// and it says so only a while after.
func (s *Shop) Pay(ctx context.Context, subject string, cents int64) (Receipt, error) {
	r, err := s.Book(ctx, KindPayout, subject, cents, rand.Text())
	if err != nil {
		return r, err
	}
	return r, wait(ctx, bankDelay)
}

// bankDelay is how long the bank takes to say that it has paid.
const bankDelay = 3 * time.Second

// ReceiptOf is the receipt of a ledger line.
func ReceiptOf(id int64, subject string, cents int64) Receipt {
	return Receipt{Receipt: fmt.Sprintf("R-%d", id), Of: subject, Paid: Euros(cents)}
}

// Tally counts what the ledger has of one kind and subject.
func (s *Shop) Tally(ctx context.Context, kind, subject string) (Tally, error) {
	var t Tally
	err := s.db.QueryRowContext(ctx, statement("tally"), kind, subject).Scan(&t.Lines, &t.Asked, &t.Cents, &t.Last)
	return t, err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
