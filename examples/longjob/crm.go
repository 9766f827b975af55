package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// A CRM stands for the far side: a system of somebody else's that keeps
// customers and honours idempotency keys.
type CRM struct {
	mu    sync.Mutex
	files map[string]File
	old   []string       // customers from before
	keys  map[string]int // rows of each import that was made
	times map[string]int // how often each customer was imported
}

// A File is a list of customers to import. Its version names its content.
type File struct {
	Version string
	Rows    []string
}

// NewCRM returns one with a file of 60 customers, two of whom it knows already.
func NewCRM() *CRM {
	f := File{Version: "march.csv@1"}
	for i := range 60 {
		f.Rows = append(f.Rows, fmt.Sprintf("customer %02d", i+1))
	}
	return &CRM{
		files: map[string]File{"march.csv": f}, old: []string{"customer 35", "customer 36"},
		keys: map[string]int{}, times: map[string]int{},
	}
}

// File returns a file by its name.
func (c *CRM) File(name string) (File, error) {
	f, ok := c.files[name]
	if !ok {
		return File{}, fmt.Errorf("there is no file %q", name)
	}
	return f, nil
}

// Split tells the rows that are known from before from the others.
func (c *CRM) Split(rows []string) (fresh, known []string) {
	for _, r := range rows {
		if slices.Contains(c.old, r) {
			known = append(known, r)
		} else {
			fresh = append(fresh, r)
		}
	}
	return fresh, known
}

// Import imports rows and returns how many. The same key again is the same
// import.
func (c *CRM) Import(_ context.Context, key string, rows []string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, ok := c.keys[key]; ok {
		return n, nil
	}
	for _, r := range rows {
		c.times[r]++
	}
	c.keys[key] = len(rows)
	return len(rows), nil
}

// Times is how many customers were imported, and how often the one that was
// imported most often.
func (c *CRM) Times() (customers, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.times {
		most = max(most, n)
	}
	return len(c.times), most
}
