"""What a program does with boto3, the SDK of AWS for Python, against the endpoint in
SQS_ENDPOINT. Old versions speak the Query protocol, new ones JSON; boto3 itself checks
the MD5 of every body and of attributes."""

import hashlib
import json
import os
import time

import boto3
from botocore.exceptions import ClientError

sqs = boto3.client("sqs", endpoint_url=os.environ["SQS_ENDPOINT"])
PREFIX = os.environ["PREFIX"]


def fails(error, call, **parameters):
    """The call fails with an exception of the given class, or code."""
    try:
        call(**parameters)
    except ClientError as failure:
        code = failure.response["Error"]["Code"]
        if isinstance(error, str):
            assert code in error.split("|"), (code, error)
        else:
            assert isinstance(failure, error), (failure, error)
        status = failure.response["ResponseMetadata"]["HTTPStatusCode"]
        assert 400 <= status < 500, status
        return failure
    raise AssertionError(f"{call} did not fail with {error}")


def attributes(url, *names):
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(names) or ["All"])["Attributes"]


def receive(url, n=10, wait=5, **more):
    return sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=n, WaitTimeSeconds=wait, **more).get("Messages", [])


def queues():
    name = PREFIX + "orders"
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "45"}, tags={"team": "shop"})["QueueUrl"]
    assert url.endswith("/000000000000/" + name), url
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "45"})["QueueUrl"] == url
    fails(sqs.exceptions.QueueNameExists if modern() else "QueueAlreadyExists",
          sqs.create_queue, QueueName=name, Attributes={"VisibilityTimeout": "46"})
    fails(sqs.exceptions.QueueDoesNotExist, sqs.get_queue_url, QueueName=PREFIX + "nobody")
    assert url in sqs.list_queues(QueueNamePrefix=PREFIX)["QueueUrls"]

    sqs.tag_queue(QueueUrl=url, Tags={"cost": "7", "colour": "blau ü"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["team"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"cost": "7", "colour": "blau ü"}

    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "2"})
    got = attributes(url)
    assert got["VisibilityTimeout"] == "45" and got["ReceiveMessageWaitTimeSeconds"] == "2", got
    assert got["QueueArn"] == f"arn:aws:sqs:{os.environ['AWS_REGION']}:000000000000:{name}", got
    assert attributes(url, "DelaySeconds") == {"DelaySeconds": "0"}
    fails("InvalidAttributeName", sqs.set_queue_attributes, QueueUrl=url, Attributes={"Nonsense": "1"})
    fails("InvalidAttributeValue|InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={"DelaySeconds": "901"})
    sqs.add_permission(QueueUrl=url, Label="partner", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    assert "partner" in attributes(url, "Policy")["Policy"]
    sqs.remove_permission(QueueUrl=url, Label="partner")
    return url


def modern():
    """Whether this boto3 speaks JSON, and so knows the shapes of newer errors."""
    return sqs.meta.service_model.metadata["protocol"] != "query"


TYPED = {
    "text": {"DataType": "String", "StringValue": "grüße <&> \"q\"\n"},
    "count": {"DataType": "Number", "StringValue": "-12.5"},
    "count.label": {"DataType": "Number.int", "StringValue": "7"},
    "raw": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    "picture": {"DataType": "Binary.png", "BinaryValue": b"\x89PNG"},
    "kind": {"DataType": "String.custom", "StringValue": "x"},
}


def messages(url):
    body = "<a>&amp;\u00e4 \U0001f4ec\t\r\n]]>"
    sent = sqs.send_message(
        QueueUrl=url, MessageBody=body, MessageAttributes=TYPED,
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}})
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    assert sent["MD5OfMessageAttributes"] and sent["MD5OfMessageSystemAttributes"]
    [got] = receive(url, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert got["MessageId"] == sent["MessageId"] and got["Body"] == body, got
    assert got["MessageAttributes"] == TYPED, got["MessageAttributes"]
    assert got["Attributes"]["ApproximateReceiveCount"] == "1" and "AWSTraceHeader" in got["Attributes"], got["Attributes"]
    assert attributes(url)["ApproximateNumberOfMessagesNotVisible"] == "1"

    # Given back, it comes again, and only the attributes that are asked for come with it.
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0)
    [got] = receive(url, AttributeNames=["ApproximateReceiveCount"], MessageAttributeNames=["count.*"])
    assert got["Attributes"] == {"ApproximateReceiveCount": "2"}, got
    assert set(got["MessageAttributes"]) == {"count", "count.label"} or set(got["MessageAttributes"]) == {"count.label"}, got
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert receive(url, wait=0) == []

    fails(sqs.exceptions.ReceiptHandleIsInvalid, sqs.delete_message, QueueUrl=url, ReceiptHandle="garbage")
    fails("InvalidParameterValue", sqs.change_message_visibility, QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=9)
    fails(sqs.exceptions.InvalidMessageContents, sqs.send_message, QueueUrl=url, MessageBody="\x01")
    fails("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x" * (1024 * 1024 + 1))
    sqs.send_message(QueueUrl=url, MessageBody="x" * 1024 * 1024)
    [large] = receive(url)
    assert len(large["Body"]) == 1024 * 1024
    sqs.delete_message(QueueUrl=url, ReceiptHandle=large["ReceiptHandle"])


def batches(url):
    entries = [{"Id": f"e{i}", "MessageBody": f"m{i}", "MessageAttributes": {"i": {"DataType": "Number", "StringValue": str(i)}}} for i in range(9)]
    out = sqs.send_message_batch(QueueUrl=url, Entries=entries + [{"Id": "bad", "MessageBody": "\x01"}])
    assert len(out["Successful"]) == 9, out
    assert [f["Code"] for f in out["Failed"]] == ["InvalidMessageContents"] and out["Failed"][0]["SenderFault"], out["Failed"]
    got = []
    while len(got) < 9:
        got += receive(url)
    assert sorted(m["Body"] for m in got) == [f"m{i}" for i in range(9)]
    out = sqs.change_message_visibility_batch(QueueUrl=url, Entries=[
        {"Id": str(i), "ReceiptHandle": m["ReceiptHandle"], "VisibilityTimeout": 60} for i, m in enumerate(got)])
    assert len(out["Successful"]) == 9, out
    out = sqs.delete_message_batch(QueueUrl=url, Entries=[
        {"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(got)] + [{"Id": "bad", "ReceiptHandle": "garbage"}])
    assert len(out["Successful"]) == 9 and out["Failed"][0]["Code"] == "ReceiptHandleIsInvalid", out
    fails(sqs.exceptions.BatchEntryIdsNotDistinct, sqs.send_message_batch, QueueUrl=url, Entries=[entries[0], entries[0]])
    for call in (sqs.send_message_batch, sqs.delete_message_batch, sqs.change_message_visibility_batch):
        fails(sqs.exceptions.EmptyBatchRequest, call, QueueUrl=url, Entries=[])
    fails(sqs.exceptions.TooManyEntriesInBatchRequest, sqs.send_message_batch, QueueUrl=url,
          Entries=[{"Id": str(i), "MessageBody": "x"} for i in range(11)])
    fails(sqs.exceptions.InvalidBatchEntryId, sqs.send_message_batch, QueueUrl=url, Entries=[{"Id": "a b", "MessageBody": "x"}])


def times(url):
    began = time.monotonic()
    assert receive(url, wait=1) == []
    assert 0.9 < time.monotonic() - began < 10
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=2)
    assert attributes(url)["ApproximateNumberOfMessagesDelayed"] == "1"
    began = time.monotonic()
    [got] = receive(url, wait=20, VisibilityTimeout=1)
    assert 1 < time.monotonic() - began < 15
    [again] = receive(url, wait=20)  # woken by the end of the visibility
    assert again["MessageId"] == got["MessageId"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])  # the old receipt: standard queues forgive
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])


def fifo():
    name = PREFIX + "orders.fifo"
    fails("InvalidParameterValue|InvalidAttributeValue", sqs.create_queue, QueueName=PREFIX + "x", Attributes={"FifoQueue": "true"})
    url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"})["QueueUrl"]
    numbers, ids = [], []
    for body in "abab":
        out = sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
        numbers.append(int(out["SequenceNumber"]))
        ids.append(out["MessageId"])
    assert ids[:2] == ids[2:] and numbers[0] < numbers[1], (ids, numbers)
    sqs.send_message(QueueUrl=url, MessageBody="c", MessageGroupId="h", MessageDeduplicationId="own")
    fails("MissingParameter|MissingRequiredParameterException", sqs.send_message, QueueUrl=url, MessageBody="x")
    fails("InvalidParameterValue|InvalidParameterValueException", sqs.send_message, QueueUrl=url, MessageBody="x", MessageGroupId="g", DelaySeconds=1)
    [first] = receive(url, n=1, AttributeNames=["All"])
    assert first["Body"] == "a" and first["Attributes"]["MessageGroupId"] == "g", first
    assert int(first["Attributes"]["SequenceNumber"]) == numbers[0] and len(first["Attributes"]["MessageDeduplicationId"]) == 64
    [other] = receive(url)
    assert other["Body"] == "c", other  # group g waits
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    [second] = receive(url, VisibilityTimeout=1)
    assert second["Body"] == "b", second
    [again] = receive(url, wait=20)
    assert again["MessageId"] == second["MessageId"]
    fails("InvalidParameterValue", sqs.delete_message, QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    sqs.delete_queue(QueueUrl=url)


def dead_letters(url):
    dead = sqs.create_queue(QueueName=PREFIX + "dead")["QueueUrl"]
    arn = attributes(dead, "QueueArn")["QueueArn"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})})
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=TYPED)
    for _ in range(2):
        [got] = receive(url)
        sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0)
    assert receive(url, wait=1) == []
    [letter] = receive(dead, VisibilityTimeout=0, AttributeNames=["All"], MessageAttributeNames=["All"])
    assert letter["MessageId"] == sent["MessageId"] and letter["MessageAttributes"] == TYPED, letter
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == attributes(url, "QueueArn")["QueueArn"], letter
    if hasattr(sqs, "start_message_move_task"):
        task = sqs.start_message_move_task(SourceArn=arn)["TaskHandle"]
        for _ in range(200):
            [state] = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
            if state["Status"] == "COMPLETED":
                break
            time.sleep(0.05)
        assert state["Status"] == "COMPLETED" and state["ApproximateNumberOfMessagesMoved"] == 1, state
        fails("InvalidParameterValue|InvalidParameterValueException", sqs.cancel_message_move_task, TaskHandle=task + "x")
        fails(sqs.exceptions.ResourceNotFoundException, sqs.start_message_move_task, SourceArn=arn + "-nobody")
        [home] = receive(url, MessageAttributeNames=["All"])
        assert home["MessageId"] == sent["MessageId"] and home["MessageAttributes"] == TYPED, home
    fails("QueueDoesNotExist|AWS.SimpleQueueService.NonExistentQueue|InvalidParameterValue|InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={
        "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn + "-nobody", "maxReceiveCount": 2})})
    sqs.delete_queue(QueueUrl=dead)


def end(url):
    for _ in range(3):
        sqs.send_message(QueueUrl=url, MessageBody="x")
    sqs.purge_queue(QueueUrl=url)
    assert receive(url, wait=0) == []
    sqs.delete_queue(QueueUrl=url)
    for call in (lambda: receive(url), lambda: sqs.send_message(QueueUrl=url, MessageBody="x"), lambda: attributes(url)):
        fails(sqs.exceptions.QueueDoesNotExist, call)
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix=PREFIX)
    assert not [u for page in pages for u in page.get("QueueUrls", [])]


def signatures():
    stranger = boto3.client("sqs", endpoint_url=os.environ["SQS_ENDPOINT"], aws_secret_access_key="wrong",
                            aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"], aws_session_token=os.environ["AWS_SESSION_TOKEN"])
    fails("SignatureDoesNotMatch", stranger.list_queues)
    nobody = boto3.client("sqs", endpoint_url=os.environ["SQS_ENDPOINT"], aws_access_key_id="AKIDEXAMPLE", aws_secret_access_key="x", aws_session_token="")
    fails("InvalidClientTokenId|UnrecognizedClientException", nobody.list_queues)


url = queues()
messages(url)
batches(url)
times(url)
fifo()
dead_letters(url)
end(url)
signatures()
print(f"boto3 {boto3.__version__}, protocol {sqs.meta.service_model.metadata['protocol']}, all as it should be")
