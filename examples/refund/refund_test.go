package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/tallystick/tallystick"
	"github.com/tallystick/tallystick/examples/internal/exampletest"
	"github.com/tallystick/tallystick/examples/internal/web"
	"github.com/tallystick/tallystick/tallysticktest"
)

func TestARefundIsMadeOnceWhereverItCrashes(t *testing.T) {
	tallysticktest.CrashEverywhere(t, func() tallysticktest.Trial {
		shop := NewShop()
		return tallysticktest.Trial{
			Server: func(s *tallystick.Server) { Add(s, shop) },
			Scenario: func(b *tallysticktest.Bench) {
				r := b.As(web.People["ann"]).Call("refund", RefundArgs{OrderID: "1001"})
				if err := b.As(web.People["frida"]).Approve(r, "approve", nil); err != nil {
					t.Error(err)
				}
				var receipt Receipt
				if r.Await("completed").Structured(&receipt); receipt.ID != "R1" {
					t.Errorf("receipt %v", receipt)
				}
			},
			Check: func(b *tallysticktest.Bench) {
				if n := shop.Refunds(); n != 1 {
					t.Errorf("%d refunds", n)
				}
			},
		}
	})
}

func TestAChangedOrderIsApprovedAnew(t *testing.T) {
	shop := NewShop()
	b := tallysticktest.New(t, func(s *tallystick.Server) { Add(s, shop) }, nil)
	frida := b.As(web.People["frida"])
	r := b.As(web.People["ann"]).Call("refund", RefundArgs{OrderID: "1001"})
	shop.Reprice("1001", "30 EUR")
	if err := frida.Approve(r, "approve", nil); err != nil {
		t.Fatal(err)
	}
	b.Quiet()
	again := frida.Waiting()
	if len(again) != 1 || again[0].Message != "Refund 30 EUR to Rosa?" || shop.Refunds() != 0 {
		t.Fatalf("asked anew: %+v, %d refunds", again, shop.Refunds())
	}
	if err := frida.Approve(r, "approve", nil); err != nil {
		t.Fatal(err)
	}
	if r.Await("completed"); shop.Refunds() != 1 {
		t.Errorf("%d refunds", shop.Refunds())
	}
}

func TestTheProgramRefunds(t *testing.T) {
	p := exampletest.Start(t, exampletest.Build(t), "-data", t.TempDir())
	ann := p.Connect("ann", nil)
	done := make(chan string, 1)
	go func() {
		_, text := exampletest.Call(t, ann, "refund", map[string]any{"orderId": "1001"}) // waits up to 20 s for frida
		done <- text
	}()
	var list []tallystick.Waiting
	for limit := time.Now().Add(20 * time.Second); len(list) == 0 && time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		resp := ask(t, "GET", p.URL+"/waiting", nil)
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if len(list) != 1 {
		t.Fatalf("waiting: %v", list)
	}
	d := map[string]any{"callId": list[0].CallID, "key": list[0].Key, "digest": list[0].Digest, "accept": true}
	if resp := ask(t, "POST", p.URL+"/decide", d); resp.StatusCode != http.StatusNoContent {
		t.Fatalf("decided: %v", resp.Status)
	}
	if text := <-done; text != `{"id":"R1","total":"20 EUR"}` {
		t.Errorf("refunded: %s", text)
	}
	p.Stop()
}

func ask(t *testing.T, method, url string, body any) *http.Response {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(method, url, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: exampletest.Bearer("frida")}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}
