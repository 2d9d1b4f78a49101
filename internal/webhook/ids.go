package webhook

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

const (
	keyWebhook  = "webhook/"
	keyDelivery = "delivery/"
	keyCursor   = "meta/webhook-cursor"
)

// newWebhookID makes an id that sorts by the time of registration.
func newWebhookID(now time.Time) string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(now.UnixMilli())<<16)
	_, _ = rand.Read(raw[6:]) // never fails, see crypto/rand
	return "wh_" + encodeID(raw[:])
}

// deliveryID is the id of an event's delivery to an endpoint. Deriving it makes dispatching repeatable and the
// webhook-id header the same over attempts, restarts and leaders.
func deliveryID(eventID, webhookID string) string {
	sum := sha256.Sum256([]byte(eventID + "\x00" + webhookID))
	return "msg_" + encodeID(sum[:16])
}

// derivedEventID is the id of an event that this package raises.
func derivedEventID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "evt_" + encodeID(sum[:16])
}

func newTestEventID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails, see crypto/rand
	return "evt_test_" + encodeID(raw[:])
}

// encodeID keeps the byte order: the extended hex alphabet ascends.
func encodeID(raw []byte) string {
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(raw))
}
