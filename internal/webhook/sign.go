package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix   = "whsec_"
	minSecretBytes = 24
	maxSecretBytes = 64
	newSecretBytes = 32
)

var errSecretForm = errors.New("must be whsec_ followed by base64 of 24 to 64 bytes")

// newSecret makes a signing secret.
func newSecret() string {
	key := make([]byte, newSecretBytes)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// secretKey is the key inside a secret.
func secretKey(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return nil, errSecretForm
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, errSecretForm
	}
	return key, nil
}

// sign is one signature of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`.
func sign(secret, id string, at time.Time, body []byte) (string, error) {
	key, err := secretKey(secret)
	if err != nil {
		return "", fmt.Errorf("secret %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// signAll signs with every secret, newest first, space-separated as the specification has it.
func signAll(secrets []string, id string, at time.Time, body []byte) (string, error) {
	signatures := make([]string, 0, len(secrets))
	for _, s := range secrets {
		signature, err := sign(s, id, at, body)
		if err != nil {
			return "", err
		}
		signatures = append(signatures, signature)
	}
	return strings.Join(signatures, " "), nil
}
