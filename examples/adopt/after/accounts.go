package main

import (
	"context"
	"fmt"
	"sync"
)

// Accounts stand for the far side.
type Accounts struct {
	mu      sync.Mutex
	balance map[string]int
	closed  map[string]int // how often each was closed
}

// NewAccounts returns two accounts.
func NewAccounts() *Accounts {
	return &Accounts{balance: map[string]int{"A1": 40, "A2": 0}, closed: map[string]int{}}
}

// Balance of an account.
func (a *Accounts) Balance(_ context.Context, account string) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, ok := a.balance[account]
	if !ok {
		return 0, fmt.Errorf("there is no account %q", account)
	}
	return n, nil
}

// Close closes an account, and pays out what is on it.
func (a *Accounts) Close(_ context.Context, account string) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed[account]++
	return a.balance[account], nil
}

// Closed is how often an account was closed.
func (a *Accounts) Closed(account string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed[account]
}
