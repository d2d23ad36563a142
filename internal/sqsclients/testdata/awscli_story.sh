#!/usr/bin/env bash
# Typical commands of the AWS CLI, against the endpoint in SQS_ENDPOINT. AWS names the
# program. Versions of 2023 and before use the Query protocol, later ones JSON; the program
# itself checks MD5 sums. Each command takes most of a second to start, so there are no
# more than needed.
set -euo pipefail

export AWS_PAGER=
sqs() { "$AWS" --endpoint-url "$SQS_ENDPOINT" --output text sqs "$@"; }

fail() {
	echo "line ${BASH_LINENO[1]}: $*" >&2
	exit 1
}
# same compares a result with the expected one.
same() { [[ $1 == "$2" ]] || fail "got '$1', want '$2'"; }
# fails expects a command to fail with an error code.
fails() {
	local code=$1 said
	shift
	if said=$(sqs "$@" 2>&1); then fail "$1 did not fail with $code"; fi
	[[ $said == *"An error occurred ($code)"* ]] || fail "$1: $said, want $code"
}

policy="{\\\"deadLetterTargetArn\\\":\\\"arn:aws:sqs:$AWS_REGION:000000000000:${PREFIX}dead\\\",\\\"maxReceiveCount\\\":\\\"1\\\"}"
dead=$(sqs create-queue --queue-name "${PREFIX}dead" --query QueueUrl)
orders=$(sqs create-queue --queue-name "${PREFIX}orders" --tags team=shop,cost=7 --query QueueUrl \
	--attributes "{\"VisibilityTimeout\":\"45\",\"RedrivePolicy\":\"$policy\"}")
same "$orders" "$SQS_ENDPOINT/000000000000/${PREFIX}orders"
same "$(sqs list-queue-tags --queue-url "$orders" --query '[Tags.team,Tags.cost]')" $'shop\t7'
fails AWS.SimpleQueueService.NonExistentQueue get-queue-url --queue-name "${PREFIX}missing"
fails InvalidAttributeName set-queue-attributes --queue-url "$orders" --attributes Nonsense=1

# A message with attributes of all types, sent and received. Version 1 takes raw bytes,
# version 2 base64; both print base64.
sent=$(sqs send-message --queue-url "$orders" --message-body 'grüße <&> "q"' --query MessageId \
	--message-attributes '{"text":{"DataType":"String","StringValue":"ü"},"n":{"DataType":"Number.int","StringValue":"1"},"raw":{"DataType":"Binary","BinaryValue":"AAH/"}}')
IFS=$'\t' read -r id body receipt text number raw < <(
	sqs receive-message --queue-url "$orders" --wait-time-seconds 5 --attribute-names All --message-attribute-names All \
		--query 'Messages[0].[MessageId,Body,ReceiptHandle,MessageAttributes.text.StringValue,MessageAttributes.n.DataType,MessageAttributes.raw.BinaryValue]')
same "$id" "$sent"
same "$body" 'grüße <&> "q"'
same "$text" ü
same "$number" Number.int
[[ $raw == AAH/ || $raw == QUFILw== ]] || fail "got $raw"

# Given back after its only delivery, the message is dead-lettered.
sqs change-message-visibility --queue-url "$orders" --receipt-handle "$receipt" --visibility-timeout 0
same "$(sqs receive-message --queue-url "$orders" --wait-time-seconds 1 --query Messages)" None
same "$(sqs receive-message --queue-url "$dead" --wait-time-seconds 5 --query 'Messages[0].MessageId')" "$sent"
same "$(sqs list-dead-letter-source-queues --queue-url "$dead" --query queueUrls)" "$orders"

# A batch with an invalid message.
same "$(sqs send-message-batch --queue-url "$dead" --query '[length(Successful),Failed[0].Code]' \
	--entries '[{"Id":"a","MessageBody":"1"},{"Id":"b","MessageBody":"2"},{"Id":"c","MessageBody":"\u0001"}]')" $'2\tInvalidMessageContents'
fails ReceiptHandleIsInvalid delete-message --queue-url "$dead" --receipt-handle garbage
sqs purge-queue --queue-url "$dead"
same "$(sqs get-queue-attributes --queue-url "$dead" --attribute-names All --query Attributes.ApproximateNumberOfMessages)" 0

fifo=$(sqs create-queue --queue-name "${PREFIX}orders.fifo" --attributes FifoQueue=true,ContentBasedDeduplication=true --query QueueUrl)
first=$(sqs send-message --queue-url "$fifo" --message-body x --message-group-id g --query MessageId)
same "$(sqs send-message --queue-url "$fifo" --message-body x --message-group-id g --query MessageId)" "$first"
IFS=$'\t' read -r id receipt < <(sqs receive-message --queue-url "$fifo" --query 'Messages[0].[MessageId,ReceiptHandle]')
same "$id" "$first"
sqs delete-message --queue-url "$fifo" --receipt-handle "$receipt"

for queue in "$orders" "$dead" "$fifo"; do sqs delete-queue --queue-url "$queue"; done
if said=$(AWS_SECRET_ACCESS_KEY=wrong sqs list-queues 2>&1); then fail "a wrong secret is accepted"; fi
[[ $said == *SignatureDoesNotMatch* ]] || fail "$said"
echo "$("$AWS" --version | cut -d' ' -f1): all as it should be"
