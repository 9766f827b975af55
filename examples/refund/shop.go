package main

import (
	"context"
	"fmt"
	"sync"
)

// A Shop stands for the far side: a system of somebody else's, which survives
// whatever happens to this server. It honours idempotency keys.
type Shop struct {
	mu      sync.Mutex
	orders  map[string]Order
	refunds map[string]Receipt // by key
}

// An Order of the shop. Its version rises with every change.
type Order struct {
	ID, Customer, Total string
	Version             int
}

// A Receipt of a refund.
type Receipt struct {
	ID    string `json:"id"`
	Total string `json:"total"`
}

// NewShop returns a shop with two orders.
func NewShop() *Shop {
	return &Shop{
		orders: map[string]Order{
			"1001": {ID: "1001", Customer: "Rosa", Total: "20 EUR", Version: 1},
			"1002": {ID: "1002", Customer: "Karl", Total: "75 EUR", Version: 1},
		},
		refunds: map[string]Receipt{},
	}
}

// Order returns an order as it is now.
func (s *Shop) Order(_ context.Context, id string) (Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.orders[id]
	if !ok {
		return Order{}, fmt.Errorf("there is no order %q", id)
	}
	return o, nil
}

// Reprice changes an order's total.
func (s *Shop) Reprice(id, total string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.orders[id]
	o.Total = total
	o.Version++
	s.orders[id] = o
}

// Refund pays an order back. The same key again is the same refund.
func (s *Shop) Refund(_ context.Context, o Order, key string) (Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.refunds[key]; ok {
		return r, nil
	}
	r := Receipt{ID: fmt.Sprintf("R%d", len(s.refunds)+1), Total: o.Total}
	s.refunds[key] = r
	return r, nil
}

// Refunds is how many there were.
func (s *Shop) Refunds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.refunds)
}
