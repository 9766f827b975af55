package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	sqlite3 "github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/vfs"
)

// A disk is what a store's files are on, for one life of a computer. What is
// written to it is in the system's memory until it is synced, and the power is
// cut at its n-th operation: from then on everything fails, and [disk.image] is
// what the next life finds.
//
// It behaves as SQLite's own layer for Unix does, which syncs the folder at the
// first sync of a file that it has made, and when it is told to at a deletion.
type disk struct {
	dir   string // where the store's code sees the files; the lock is really there
	shm   string // of the WAL's index, which does not survive
	cutAt int    // the operation at which the power is cut; 0: none
	// cutSync cuts it at the n-th sync instead, before that or after.
	cutSync struct {
		n     int
		after bool
	}
	off   chan struct{}
	watch func(what string) // told of each operation, with mu

	mu      sync.Mutex
	n       int
	syncs   int               // of files
	dead    bool              // the power is off
	files   map[string]*inode // the folder as the system has it
	folder  map[string]*inode // the folder as it would be found
	pending []unsynced        // in the order in which they were asked for
}

// An inode is a file, whatever its name.
type inode struct {
	data  []byte // as the system has it
	kept  []byte // as it would be found
	fresh bool   // made here, and not synced yet
	locks
}

// Unsynced is what has been asked for and may be lost.
type unsynced struct {
	on      *inode // nil: the folder's
	at      int64
	data    []byte // to be written there; nil: the file is cut to that length
	name    string
	becomes *inode // what the name is from now on; nil: nothing
}

var errPower = errors.New("the power is off")

// disks are those that stores may be opened on, by folder.
var (
	disks     sync.Map
	diskCount atomic.Int64
)

func init() {
	pool, code := openPool, resultCode
	openPool = func(dsn string) (*sql.DB, error) {
		u, err := url.Parse(dsn)
		if err != nil {
			return nil, err
		}
		d, ok := disks.Load(filepath.Dir(u.Path))
		if !ok {
			return pool(dsn)
		}
		return sql.Open("sqlite3", dsn+"&vfs="+d.(string))
	}
	resultCode = func(err error) (int, bool) {
		var e *sqlite3.Error
		if errors.As(err, &e) {
			return int(e.ExtendedCode()), true
		}
		return code(err)
	}
}

// An image is what files there are, and what is in them.
type image map[string][]byte

// boot starts a computer in a folder on what the one before has left. end gives
// it back.
func boot(parent string, found image, cutAt int) (d *disk, end func(), err error) {
	name := fmt.Sprintf("disk-%d", diskCount.Add(1))
	d = &disk{
		dir: filepath.Join(parent, name), shm: filepath.Join(parent, name+".index"), cutAt: cutAt,
		off: make(chan struct{}), files: map[string]*inode{}, folder: map[string]*inode{},
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return nil, nil, err
	}
	for name, data := range found {
		// The store's code looks at their sizes, and SQLite at what is in them.
		if err := os.WriteFile(filepath.Join(d.dir, name), data, 0o600); err != nil {
			return nil, nil, err
		}
		if name != lockName {
			i := &inode{data: slices.Clone(data), kept: slices.Clone(data)}
			d.files[name], d.folder[name] = i, i
		}
	}
	vfs.Register(name, d)
	disks.Store(d.dir, name)
	return d, func() {
		vfs.Unregister(name)
		disks.Delete(d.dir)
		_ = os.RemoveAll(d.dir)
		_ = os.Remove(d.shm)
	}, nil
}

const (
	fileName = "store.db"
	lockName = fileName + ".lock"
)

func (d *disk) path() string { return filepath.Join(d.dir, fileName) }

// A survival says what becomes of that which was not synced.
type survival string

const (
	lost    survival = "lost"    // nothing of it was written
	torn    survival = "torn"    // some of it, in order, and the last write in part
	some    survival = "some"    // any sectors of it, in any order
	written survival = "written" // all of it, as when a process is killed only
)

var survivals = []survival{lost, torn, some, written}

// image cuts the power, if it is on, and returns what is found afterwards.
func (d *disk) image(s survival, seed uint64) (image, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut()
	return d.found(s, seed)
}

// found is what would be found if the power were cut now. It needs mu.
func (d *disk) found(s survival, seed uint64) (image, error) {
	r := rand.New(rand.NewPCG(seed, uint64(d.n)))
	upTo := len(d.pending)
	if s == torn {
		upTo = r.IntN(len(d.pending) + 1)
	}
	f := platter{folder: maps.Clone(d.folder), files: map[*inode][]byte{}}
	for i, u := range d.pending {
		switch {
		case s == written, s == torn && i < upTo:
			f.keep(u)
		case s == torn && i == upTo && u.data != nil:
			u.data = u.data[:r.IntN(len(u.data)+1)]
			f.keep(u)
		case s == some && u.data == nil && r.IntN(2) == 0:
			f.keep(u)
		case s == some:
			const sector = 512
			for at := 0; at < len(u.data); at += sector {
				if r.IntN(2) == 0 {
					f.keep(unsynced{on: u.on, at: u.at + int64(at), data: u.data[at:min(at+sector, len(u.data))]})
				}
			}
		}
	}
	found := image{}
	for name, i := range f.folder {
		found[name] = slices.Clone(f.of(i))
	}
	lock, err := os.ReadFile(filepath.Join(d.dir, lockName)) // which the store's code syncs itself
	found[lockName] = lock
	return found, err
}

// A platter is what is durable.
type platter struct {
	folder map[string]*inode
	files  map[*inode][]byte // those that differ from what their inode says
}

func (p platter) of(i *inode) []byte {
	if b, ok := p.files[i]; ok {
		return b
	}
	return i.kept
}

// keep makes one of the pending ones durable.
func (p platter) keep(u unsynced) {
	if u.on == nil {
		if delete(p.folder, u.name); u.becomes != nil {
			p.folder[u.name] = u.becomes
		}
		return
	}
	b, mine := p.files[u.on]
	if !mine {
		b = slices.Clone(u.on.kept)
	}
	if u.data == nil {
		b = resize(b, u.at)
	} else {
		b = overwrite(b, u.data, u.at)
	}
	p.files[u.on] = b
}

func resize(b []byte, size int64) []byte {
	if more := size - int64(len(b)); more > 0 {
		return append(b, make([]byte, more)...)
	}
	return b[:size:size]
}

func overwrite(b, data []byte, at int64) []byte {
	if end := at + int64(len(data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[at:], data)
	return b
}

// do counts an operation, at which the power may be cut. What it asks for is
// then on its way.
func (d *disk) do(what string, ask *unsynced) error {
	if d.dead {
		return errPower
	}
	d.n++
	if ask != nil {
		d.pending = append(d.pending, *ask)
	}
	if d.watch != nil {
		d.watch(what)
	}
	if d.n == d.cutAt {
		d.cut()
		return errPower
	}
	return nil
}

// cut needs mu.
func (d *disk) cut() {
	if !d.dead {
		d.dead = true
		close(d.off)
	}
}

// sync makes all durable that was asked of a file, or with nil of the folder.
func (d *disk) sync(on *inode) {
	p := platter{folder: d.folder, files: map[*inode][]byte{}}
	var left []unsynced
	for _, u := range d.pending {
		if u.on == on {
			p.keep(u)
		} else {
			left = append(left, u)
		}
	}
	d.pending = left
	for i, b := range p.files {
		i.kept = b
	}
}

// operations is how many there were.
func (d *disk) operations() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// Open implements [vfs.VFS].
func (d *disk) Open(path string, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return nil, flags, errPower
	}
	name := filepath.Base(path)
	if path == "" || filepath.Dir(path) != d.dir {
		return nil, flags, fmt.Errorf("a file elsewhere: %q", path)
	}
	i := d.files[name]
	switch {
	case i != nil:
	case flags&vfs.OPEN_CREATE == 0:
		return nil, flags, sqlite3.CANTOPEN
	case flags&vfs.OPEN_MAIN_DB != 0: // made and synced by the store's code
		i = &inode{}
		d.files[name], d.folder[name] = i, i
	default:
		i = &inode{fresh: true}
		d.files[name] = i
		if err := d.do("create "+name, &unsynced{name: name, becomes: i}); err != nil {
			return nil, flags, err
		}
	}
	f := &diskFile{d: d, i: i, name: name, shm: vfs.NewSharedMemory(d.shm, flags)}
	return f, flags, nil
}

// Delete implements [vfs.VFS].
func (d *disk) Delete(path string, syncDir bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := filepath.Base(path)
	if d.files[name] == nil {
		return sqlite3.IOERR_DELETE_NOENT
	}
	if err := d.do("delete "+name, &unsynced{name: name}); err != nil {
		return err
	}
	delete(d.files, name)
	if syncDir {
		d.sync(nil)
	}
	return nil
}

// Access implements [vfs.VFS].
func (d *disk) Access(path string, _ vfs.AccessFlag) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return false, errPower
	}
	return d.files[filepath.Base(path)] != nil, nil
}

// FullPathname implements [vfs.VFS].
func (d *disk) FullPathname(path string) (string, error) { return path, nil }

// A diskFile is a file that a connection has open.
type diskFile struct {
	d    *disk
	i    *inode
	name string
	shm  vfs.SharedMemory
	lock vfs.LockLevel
}

var _ vfs.FileSharedMemory = (*diskFile)(nil)

func (f *diskFile) SharedMemory() vfs.SharedMemory { return f.shm }

func (f *diskFile) Close() error {
	if f.shm != nil {
		_ = f.shm.Close() // it is a file that nobody needs any more
	}
	return f.Unlock(vfs.LOCK_NONE)
}

func (f *diskFile) ReadAt(b []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.dead {
		return 0, errPower
	}
	if at >= int64(len(f.i.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.i.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *diskFile) WriteAt(b []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.do("write "+f.name, &unsynced{on: f.i, at: at, data: slices.Clone(b)}); err != nil {
		return 0, err
	}
	f.i.data = overwrite(f.i.data, b, at)
	return len(b), nil
}

func (f *diskFile) Truncate(size int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.do("truncate "+f.name, &unsynced{on: f.i, at: size}); err != nil {
		return err
	}
	f.i.data = resize(f.i.data, size)
	return nil
}

func (f *diskFile) Sync(vfs.SyncFlag) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.do("sync "+f.name, nil); err != nil {
		return err
	}
	at := f.d.cutSync.n > 0 && f.d.syncs+1 >= f.d.cutSync.n
	if at && !f.d.cutSync.after {
		f.d.cut()
		return errPower
	}
	f.d.syncs++
	f.d.sync(f.i)
	if f.i.fresh {
		f.i.fresh = false
		f.d.sync(nil)
	}
	if at {
		f.d.cut()
		return errPower
	}
	return nil
}

func (f *diskFile) Size() (int64, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.dead {
		return 0, errPower
	}
	return int64(len(f.i.data)), nil
}

// locks are those of SQLite's rollback journal; in WAL mode the index has its
// own.
type locks struct {
	shared    int
	reserving *diskFile // has RESERVED, PENDING or EXCLUSIVE
	pending   bool
}

func (f *diskFile) Lock(to vfs.LockLevel) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	l := &f.i.locks
	switch {
	case f.lock >= to:
		return nil
	case to == vfs.LOCK_SHARED:
		if l.pending {
			return sqlite3.BUSY
		}
		l.shared++
	case l.reserving != nil && l.reserving != f:
		return sqlite3.BUSY
	case to == vfs.LOCK_RESERVED:
		l.reserving = f
	default:
		l.reserving, l.pending = f, true
		if l.shared > 1 {
			f.lock = vfs.LOCK_PENDING
			return sqlite3.BUSY
		}
	}
	f.lock = to
	return nil
}

func (f *diskFile) Unlock(to vfs.LockLevel) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.lock <= to {
		return nil
	}
	l := &f.i.locks
	if l.reserving == f {
		l.reserving, l.pending = nil, false
	}
	if to == vfs.LOCK_NONE {
		l.shared--
	}
	f.lock = to
	return nil
}

func (f *diskFile) CheckReservedLock() (bool, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.i.reserving != nil, nil
}

func (f *diskFile) SectorSize() int { return 4096 }

// DeviceCharacteristics are those that SQLite takes for granted on Unix: to
// write to a sector leaves the rest of it alone.
func (f *diskFile) DeviceCharacteristics() vfs.DeviceCharacteristic {
	return vfs.IOCAP_POWERSAFE_OVERWRITE
}

func (im image) String() string {
	var s []string
	for _, name := range slices.Sorted(maps.Keys(im)) {
		s = append(s, fmt.Sprintf("%s: %d bytes", name, len(im[name])))
	}
	return strings.Join(s, ", ")
}
