// Asks a balde service before doing work. Standard library only:
//
//	go run check.go http://127.0.0.1:8085 per_user alice
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

// Decision is what the service answers; docs/service-openapi.json has the other fields.
type Decision struct {
	Allowed      bool  `json:"allowed"`
	Remaining    int64 `json:"remaining"`
	RetryAfterUs int64 `json:"retry_after_us"`
}

// check returns nil without an error if the service does not answer in time: then the caller has to choose.
func check(client *http.Client, service, limit, key string) (*Decision, error) {
	body, err := json.Marshal(map[string]string{"limit": limit, "key": key})
	if err != nil {
		return nil, err
	}
	answer, err := client.Post(service+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, nil
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		var decision Decision
		err := json.NewDecoder(answer.Body).Decode(&decision)
		return &decision, err
	case http.StatusServiceUnavailable: // Overloaded, or its Redis is unavailable.
		return nil, nil
	default: // A mistake of this program: no such limit, no right.
		return nil, fmt.Errorf("the service answered %s", answer.Status)
	}
}

func main() {
	client := &http.Client{Timeout: 10 * time.Second} // In production rather 200 ms.
	for i := 0; i < 3; i++ {
		decision, err := check(client, os.Args[1], os.Args[2], os.Args[3])
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		case decision == nil:
			fmt.Println("no answer: allowed") // Fail open.
		case decision.Allowed:
			fmt.Printf("allowed, %d left\n", decision.Remaining)
		default:
			wait := time.Duration(decision.RetryAfterUs) * time.Microsecond
			fmt.Printf("refused, retry in %.0f s\n", wait.Seconds())
		}
	}
}
