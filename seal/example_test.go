package seal_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/tallystick/tallystick/seal"
)

func Example() {
	folder, err := os.MkdirTemp("", "seal")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	keys, err := seal.OpenOrCreateFile(filepath.Join(folder, "key.json"))
	if err != nil {
		log.Fatal(err)
	}
	sealer, err := seal.NewSealer(keys.AEAD(), seal.Audience("orders", "production"))
	if err != nil {
		log.Fatal(err)
	}
	now := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	state, err := sealer.Seal(seal.Claims{Principal: "8c5d…", Call: "c1", Round: 1, Issued: now, Expires: now.Add(15 * time.Minute)})
	if err != nil {
		log.Fatal(err)
	}

	claims, err := sealer.Open(state)
	fmt.Println(claims.Call, claims.Round, err)
	fmt.Println(claims.Expired(now), claims.Expired(now.Add(time.Hour)))
	_, err = sealer.Open(state + "-TAMPERED")
	fmt.Println(errors.Is(err, seal.ErrInvalid))
	// Output:
	// c1 1 <nil>
	// false true
	// true
}

// Between the steps, every process gets the keyset of the step before.
func ExampleKeyset_rotation() {
	keys, err := seal.NewKeyset()
	if err != nil {
		log.Fatal(err)
	}
	before := keys.List()[0].ID

	next, err := keys.Add() // opens everywhere
	if err != nil {
		log.Fatal(err)
	}
	if err := keys.Promote(next); err != nil { // seals
		log.Fatal(err)
	}
	if err := keys.Disable(before); err != nil { // once its last state has expired
		log.Fatal(err)
	}
	for _, key := range keys.List() {
		fmt.Println(key.ID == next, key.Primary, key.Enabled)
	}
	// Output:
	// false false false
	// true true true
}
