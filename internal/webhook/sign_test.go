package webhook

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// publicSecret is the secret of the specification's examples.
const publicSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // known to everybody

func TestSignatureOfTheSpecification(t *testing.T) {
	t.Parallel()
	// The example that the specification's libraries share.
	got, err := sign(publicSecret, "msg_p5jXN8AQM9LWM0D4loKWxJek",
		time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	require.NoError(t, err)
	assert.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", got)
}

func TestEverySecretSigns(t *testing.T) {
	t.Parallel()
	newer, older := newSecret(), newSecret()
	now := time.Now()
	body := []byte(`{"id":"evt_1"}`)
	signature, err := signAll([]string{newer, older}, "msg_1", now, body)
	require.NoError(t, err)
	assert.Len(t, strings.Fields(signature), 2)
	header := http.Header{}
	header.Set("webhook-id", "msg_1")
	header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	header.Set("webhook-signature", signature)
	for _, secret := range []string{newer, older} {
		wh, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		require.NoError(t, wh.Verify(body, header))
		require.Error(t, wh.Verify(append([]byte(" "), body...), header), "another body")
	}
	wh, err := standardwebhooks.NewWebhook(newSecret())
	require.NoError(t, err)
	require.Error(t, wh.Verify(body, header), "another secret")
}

func TestSecretForm(t *testing.T) {
	t.Parallel()
	encode := func(n int) string { return secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for secret, valid := range map[string]bool{
		encode(23): false, encode(24): true, encode(64): true, encode(65): false,
		"":                                  false,
		"whsec_":                            false,
		"whsec_%%%":                         false,
		strings.TrimPrefix(encode(32), "w"): false,
		base64.StdEncoding.EncodeToString(make([]byte, 32)): false,
		newSecret(): true,
	} {
		_, err := secretKey(secret)
		assert.Equal(t, valid, err == nil, "%q", secret)
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "msg_tsvpbs74c3tur7kha4197sev3g", deliveryID("evt_1", "wh_1"), "the same in every version")
	assert.NotEqual(t, deliveryID("evt_1", "wh_1"), deliveryID("evt_1", "wh_2"))
	assert.NotEqual(t, deliveryID("evt_1", "wh_1"), deliveryID("evt_2", "wh_1"))
	assert.NotContains(t, deliveryID("evt_1", "wh_1"), ".", "the signature separates by dots")
	now := time.Now()
	assert.Less(t, newWebhookID(now), newWebhookID(now.Add(time.Millisecond)), "ids sort by registration")
	one, another := newWebhookID(now), newWebhookID(now)
	assert.NotEqual(t, one, another)
}
