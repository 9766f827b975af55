// Package store says how calls are remembered. A store applies a
// [record.Change] whole or not at all and knows no rules.
package store

import (
	"context"
	"errors"
	"time"

	"github.com/tallystick/tallystick/record"
)

// Errors that a caller branches on. Any other error of a store means that
// nothing is known of the change; it may be tried again after a Load.
var (
	// ErrNotFound: no such call or mark.
	ErrNotFound = errors.New("store: not found")
	// ErrConflict: the call or a mark is not what the change expects. Load and
	// decide anew.
	ErrConflict = errors.New("store: changed meanwhile")
	// ErrQuota: the tenant has as many live calls as it may have.
	ErrQuota = errors.New("store: the tenant has too many live calls (limit: calls per tenant)")
	// ErrFull: no space is left. Nothing was changed; it works again once there is.
	ErrFull = errors.New("store: no space left; free some, nothing acknowledged was lost")
	// ErrCorrupt: what is stored cannot be trusted. Restore a backup.
	ErrCorrupt = errors.New("store: the data is corrupt; stop, keep the files, restore a backup")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("store: in use by another process; one process per folder")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store: closed")
)

// A Store remembers calls, marks and the audit trail. All methods are safe for
// concurrent use. A store passes storetest.Run.
type Store interface {
	// Now is the store's clock, the one that leases and deadlines go by.
	Now(ctx context.Context) (time.Time, error)

	// Load returns a call as last committed, with its version, lease,
	// arguments and result, or ErrNotFound.
	Load(ctx context.Context, id string) (*record.Call, error)
	// Mark returns a mark, or ErrNotFound. A mark past its Until, that moment
	// included, is not found, and binds no change.
	Mark(ctx context.Context, id record.MarkID) (*record.Mark, error)

	// Commit applies one change whole or not at all, and returns once it would
	// survive power loss. Errors: ErrConflict (version, epoch, lapsed lease, or
	// a mark of another call), ErrQuota, ErrFull; a conflict goes before the
	// quota. After any other error it is not known whether the change was
	// applied. If ctx ends while the change still waits for its turn, it is not
	// applied; after that Commit returns only once it is known what came of it.
	//
	// The call's new version is c.Version + 1, whatever After says. While a run
	// goes on (After is Running at the epoch that is stored) the lease stays
	// the one that is stored, which may have been renewed meanwhile; any other
	// change writes After's.
	Commit(ctx context.Context, c record.Change) error

	// Due returns ids of calls that want looking at by now, earliest first, at
	// most limit of each kind: ready (a worker may take them, whatever the time
	// is; those of the tenants in except left out) and overdue (a deadline, question, lease or
	// retention has passed). Next is when the first call that is not due by now
	// will be; zero when none ever is. It says nothing of calls that are due
	// already and were left off, by the limit or as a tenant's in except.
	Due(ctx context.Context, now time.Time, limit int, except []string) (Due, error)

	// Renew extends the leases that holder has on these calls, each if it still
	// runs at that epoch, and returns those that were extended. A lease that is
	// over stays over, since whoever saw that may be taking the call; none is
	// shortened.
	Renew(ctx context.Context, holder string, leases []LeaseRef, until time.Time) ([]LeaseRef, error)
	// Takeover says that node has started anew: leases of its earlier holders
	// (whose name is node + "/" + anything but boot) are over at once. In a
	// store that is not Shared all other holders' leases are.
	Takeover(ctx context.Context, node, boot string) error

	// List returns calls of a tenant, oldest first, at most f.Limit, without
	// their arguments and results: those may be megabytes each. ErrNotFound: the
	// call f.After is gone, and with it the place to go on from.
	List(ctx context.Context, f Filter) ([]*record.Call, error)
	// Audit returns entries after the one with that sequence number (0: from
	// the start), oldest first, at most limit. call and tenant, if not empty,
	// narrow it. Numbers rise in the order of the commits, from 1.
	Audit(ctx context.Context, q AuditQuery) ([]AuditRow, error)

	// Counts tells how much there is to do, over all tenants. It takes no longer
	// for calls that have ended, however many they are.
	Counts(ctx context.Context) (Counts, error)

	// Purge deletes marks past their Until, at most limit, and returns how many.
	Purge(ctx context.Context, now time.Time, limit int) (int, error)

	// Wake returns a channel that receives, without blocking the store, when
	// another process may have changed something. Nil when there is no other.
	// It serves one wait, of any number of goroutines: take it before looking
	// at the store, or what changes between the look and the wait is missed.
	Wake() <-chan struct{}
	// Shared reports whether several processes may have it open.
	Shared() bool
	// Close waits for what is being written; everything else, then and
	// afterwards, gets ErrClosed.
	Close() error
}

// Due is what Store.Due found.
type Due struct {
	Ready   []string
	Overdue []string
	Next    time.Time
}

// Counts are how many there are, at one moment.
type Counts struct {
	Ready   int // calls that wait for a worker
	Running int // calls that a run has
	Open    int // open questions and held effects, which wait for people
}

// A LeaseRef names a lease.
type LeaseRef struct {
	Call  string
	Epoch int64
}

// A Filter selects calls for List.
type Filter struct {
	Tenant string
	Open   bool   // only those with an open question or a held effect
	Live   bool   // only those that have not ended
	After  string // id of the last one seen; empty: from the start
	Limit  int    // at most; 0 means 100, more than 1000 means 1000
}

// An AuditQuery selects audit entries.
type AuditQuery struct {
	Call   string // empty: all calls
	Tenant string // empty: all tenants
	After  int64  // sequence number
	Limit  int    // at most; 0 means 100, more than 1000 means 1000
}

// An AuditRow is an audit entry with its place in the trail.
type AuditRow struct {
	Seq int64
	record.Entry
}
