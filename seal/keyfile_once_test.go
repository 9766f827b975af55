package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestAllWhoCreateAtOnceGetOneKey(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "key.json")
		var got [16]string
		var start, done sync.WaitGroup
		start.Add(1)
		for i := range got {
			done.Go(func() {
				start.Wait()
				k, err := OpenOrCreateFile(path)
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = secretOf(t, k)
			})
		}
		start.Done()
		done.Wait()
		for i := range got {
			if got[i] != got[0] {
				t.Fatal("two keys were made")
			}
		}
		if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
			t.Errorf("files are left behind: %v", files)
		}
	}
}

const (
	createVariable = "TALLYSTICK_TEST_CREATE_KEY_FILE"
	addVariable    = "TALLYSTICK_TEST_ADD_KEY" // and not only create
)

// TestMain is, in a child of the next tests, a process that creates a file, or
// adds a key to it.
func TestMain(m *testing.M) {
	path := os.Getenv(createVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	// Until it is closed, so that all start at once.
	_, _ = os.Stdin.Read(make([]byte, 1))
	k, err := OpenOrCreateFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv(addVariable) == "" {
		fmt.Println(k.List()[0].ID)
		return
	}
	for range 5 {
		if _, err := ChangeFile(path, printAdded); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func printAdded(k *Keyset) error {
	id, err := k.Add()
	fmt.Println(id)
	return err
}

// atOnce runs processes that are this test's children, and returns what they
// print.
func atOnce(t *testing.T, env ...string) []bytes.Buffer {
	t.Helper()
	in, start, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	children := make([]*exec.Cmd, 8)
	outputs := make([]bytes.Buffer, len(children))
	for i := range children {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), env...)
		c.Stdin, c.Stdout, c.Stderr = in, &outputs[i], os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		children[i] = c
	}
	start.Close()
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	return outputs
}

func TestProcessesThatCreateAtOnceGetOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	outputs := atOnce(t, createVariable+"="+path)
	k, err := LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range outputs {
		if got, want := outputs[i].String(), fmt.Sprintln(k.List()[0].ID); got != want {
			t.Errorf("process %d has key %s, the file %s", i, got, want)
		}
	}
}

func TestNobodyWhoChangesAFileAtOnceLosesAKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	var added []string
	for _, b := range atOnce(t, createVariable+"="+path, addVariable+"=1") {
		added = append(added, strings.Fields(b.String())...)
	}
	k, err := LoadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, info := range k.List() {
		there[fmt.Sprint(info.ID)] = true
	}
	for _, id := range added {
		if !there[id] {
			t.Errorf("key %s is lost", id)
		}
	}
	if len(added) != 8*5 || len(there) != len(added)+1 {
		t.Errorf("%d added, %d there", len(added), len(there))
	}
	// Of goroutines likewise, and through a link.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if _, err := ChangeFile([]string{path, link}[i%2], func(k *Keyset) error { _, err := k.Add(); return err }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if k, err = LoadFile(path); err != nil || len(k.List()) != len(there)+6 {
		t.Errorf("%v, %d keys of %d", err, len(k.List()), len(there)+6)
	}
	onlyPrivateFiles(t, filepath.Dir(path))
}

func TestAChangeThatFailsLeavesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	if _, err := ChangeFile(path, printAdded); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 0 {
		t.Errorf("files are left behind: %v", files)
	}
	if _, err := OpenOrCreateFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := ChangeFile(path, func(k *Keyset) error { _, _ = k.Add(); return errDisk }); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if k, err := LoadFile(path); err != nil || len(k.List()) != 1 {
		t.Errorf("%v: it has changed", err)
	}
}
